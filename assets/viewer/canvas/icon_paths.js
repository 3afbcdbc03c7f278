// @ts-check
/** The shapes of the glyphs: paths on a 16×16 grid. */

/** @typedef {{stroke?: string, fill?: string}} Glyph */

/** @type {Glyph} */
export const CLOSE = { stroke: "M4.5 4.5l7 7M11.5 4.5l-7 7" };

/** @type {Glyph} */
export const FIT = { stroke: "M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10" };

/** @type {Glyph} */
export const PLUS = { stroke: "M8 3.5v9M3.5 8h9" };

/** @type {Glyph} */
export const MINUS = { stroke: "M3.5 8h9" };

/** @type {Glyph} */
export const COMPARE = { stroke: "M2 2.5h4.5v11H2ZM9.5 2.5H14v11H9.5ZM11.5 5.5v5M3.5 8h1.5" };

const DISC = "M15 8A7 7 0 1 1 1 8a7 7 0 0 1 14 0Z";

/** @type {Glyph} */
export const FAILED = {
  fill: DISC,
  stroke: "M5.5 5.5l5 5M10.5 5.5l-5 5",
};

/** @satisfies {Record<string, Glyph>} */
export const GLYPHS = {
  logo: {
    stroke:
      "M6 12a2 2 0 1 1-4 0 2 2 0 0 1 4 0ZM14 12a2 2 0 1 1-4 0 2 2 0 0 1 4 0ZM10 4a2 2 0 1 1-4 0 2 2 0 0 1 4 0ZM7 6 5 10M9 6l2 4",
  },
  fold: {
    stroke:
      "M2 2.5h12M2 13.5h12M3.5 2.5c0 4 3 3 3 5.5s-3 2-3 5.5M8 2.5v11M12.5 2.5c0 4-2 3-2 5.5s2 2 2 5.5",
  },
  graph: {
    stroke: "M5.5 1.5h5v4h-5ZM1.5 10.5h5v4h-5ZM9.5 10.5h5v4h-5ZM8 5.5V8M4 10.5V8h8v2.5",
  },
  checkpoint: { stroke: "M12.8 9.2A5 5 0 1 1 12 5M12.6 2v3.3H9.3" },
  findings: { stroke: "M8 2.2 14.3 13.3H1.7ZM8 6.5v3.2M8 11.4v.2" },
  source: { stroke: "M5.5 4 2 8l3.5 4M10.5 4 14 8l-3.5 4" },
  search: {
    stroke: "M11.2 7A4.2 4.2 0 1 1 2.8 7a4.2 4.2 0 0 1 8.4 0ZM10.2 10.2 14 14",
  },
  fit: FIT,
  plus: PLUS,
  minus: MINUS,
  help: {
    stroke:
      "M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0ZM6.2 6.4A1.9 1.9 0 1 1 8.6 8.2C8.1 8.4 8 8.7 8 9.3M8 11.3v.2",
  },
  right: { stroke: "M6 4.5 9.5 8 6 11.5" },
  left: { stroke: "M9.5 4.5 6 8l3.5 3.5" },
  down: { stroke: "M4.5 6 8 9.5 11.5 6" },
  close: CLOSE,
  pencil: {
    stroke: "M2.8 13.2l.8-3.3L10.7 2.8l2.5 2.5L6.1 12.4ZM9 4.5l2.5 2.5",
  },
  hook: {
    fill: DISC,
    stroke: "M14.5 8a6.5 6.5 0 1 1-13 0 6.5 6.5 0 0 1 13 0ZM9.8 4.5v4.7a2.2 2.2 0 0 1-4.4 0",
  },
  timeline: { stroke: "M2 3.5h6M5 8h6M9 12.5h5" },
  memory: { stroke: "M2 2.5h12v3H2ZM2 5.5h8v4H2ZM2 9.5h4v4H2Z" },
  compare: COMPARE,
  tensors: { stroke: "M2 4h12M2 8h12M2 12h12M5 2.5v3M10.5 6.5v3M7 10.5v3" },
  clone: { stroke: "M2.5 2.5h7.5v7.5h-7.5ZM6 10v3.5h7.5V6H10" },
  pack: { fill: "M6.5 2.5h3v11h-3Z" },
  used: { stroke: "M14 8a6 6 0 1 1-12 0 6 6 0 0 1 12 0ZM5 8.3 7.2 10.4 11 5.8" },
  release: { stroke: "M12 8a4 4 0 1 1-8 0 4 4 0 0 1 8 0Z" },
  sorted: { stroke: "M8 3v10M4.5 9.5 8 13l3.5-3.5" },
  play: { fill: "M4.5 2.5 13 8l-8.5 5.5Z" },
  pause: { fill: "M4 3h3v10H4ZM9 3h3v10H9Z" },
  start: { stroke: "M3.5 3.5v9M12.5 3.5 6 8l6.5 4.5Z" },
  end: { stroke: "M12.5 3.5v9M3.5 3.5 10 8l-6.5 4.5Z" },
  copy: { stroke: "M5.5 5.5h8v8h-8ZM10.5 5.5v-3h-8v8h3" },
  export: { stroke: "M8 10V2.5M5 5l3-3 3 3M3 8.5v5h10v-5" },
  path: { stroke: "M3 13V9.5h10V3M10.5 5.5 13 3l2.5 2.5" },
  zero: { stroke: "M11 8c0 3-1.2 4.8-3 4.8S5 11 5 8s1.2-4.8 3-4.8S11 5 11 8Z" },
  nan: { fill: "M8 1.5 15 14H1Z", stroke: "M8 6v3.5M8 11.5v.2" },
  check: { stroke: "M3.5 8.5 6.5 11.5 12.5 4.5" },
  none: { stroke: "M12 8a4 4 0 1 1-8 0 4 4 0 0 1 8 0ZM3.5 12.5l9-9" },
  compiled: { stroke: "M2 3.5h12v3H2ZM2 10.5h12v3H2ZM5 6.5v4M10.5 6.5v4" },
  failed: FAILED,
  found: { fill: DISC, stroke: "M8 4.3v4.4M8 11.5v.2" },
};

/** @typedef {keyof typeof GLYPHS} GlyphName */
