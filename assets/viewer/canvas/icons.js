// @ts-check
/** The glyphs: paths on a 16×16 grid, drawn on a canvas or as an SVG element. */

/** @typedef {{stroke?: string, fill?: string}} Glyph */

/** @satisfies {Record<string, Glyph>} */
export const GLYPHS = {
  logo: {
    stroke:
      "M6 12a2 2 0 1 1-4 0 2 2 0 0 1 4 0ZM14 12a2 2 0 1 1-4 0 2 2 0 0 1 4 0ZM10 4a2 2 0 1 1-4 0 2 2 0 0 1 4 0ZM7 6 5 10M9 6l2 4",
  },
  graph: {
    stroke:
      "M5.500 1.500h5v4h-5ZM1.500 10.500h5v4h-5ZM9.500 10.500h5v4h-5ZM8 5.500V8M4 10.500V8h8v2.500",
  },
  checkpoint: { stroke: "M12.800 9.200A5 5 0 1 1 12 5M12.600 2v3.300H9.300" },
  findings: { stroke: "M8 2.200 14.300 13.300H1.700ZM8 6.500v3.200M8 11.400v.2" },
  source: { stroke: "M5.500 4 2 8l3.500 4M10.500 4 14 8l-3.500 4" },
  search: {
    stroke: "M11.200 7A4.200 4.200 0 1 1 2.800 7a4.200 4.200 0 0 1 8.400 0ZM10.200 10.200 14 14",
  },
  fit: { stroke: "M2.500 6V2.500H6M10 2.500h3.500V6M13.500 10v3.500H10M6 13.500H2.500V10" },
  plus: { stroke: "M8 3.500v9M3.500 8h9" },
  minus: { stroke: "M3.500 8h9" },
  help: {
    stroke:
      "M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0ZM6.200 6.400A1.900 1.900 0 1 1 8.600 8.200C8.100 8.400 8 8.700 8 9.300M8 11.300v.2",
  },
  right: { stroke: "M6 4.500 9.500 8 6 11.500" },
  down: { stroke: "M4.500 6 8 9.500 11.500 6" },
  close: { stroke: "M4.500 4.500l7 7M11.500 4.500l-7 7" },
  pencil: {
    stroke: "M2.800 13.200l.8-3.300L10.700 2.800l2.500 2.500L6.100 12.400ZM9 4.500l2.500 2.500",
  },
  hook: {
    fill: "M15 8A7 7 0 1 1 1 8a7 7 0 0 1 14 0Z",
    stroke:
      "M14.500 8a6.500 6.500 0 1 1-13 0 6.500 6.500 0 0 1 13 0ZM9.800 4.500v4.700a2.200 2.200 0 0 1-4.400 0",
  },
  timeline: { stroke: "M2 3.500h6M5 8h6M9 12.500h5" },
  memory: { stroke: "M2 2.500h12v3H2ZM2 5.500h8v4H2ZM2 9.500h4v4H2Z" },
  compare: { stroke: "M2 2.500h4.500v11H2ZM9.500 2.500H14v11H9.500ZM11.500 5.500v5M3.500 8h1.500" },
  tensors: { stroke: "M2 4h12M2 8h12M2 12h12M5 2.500v3M10.500 6.500v3M7 10.500v3" },
  clone: { stroke: "M2.500 2.500h7.500v7.500h-7.500ZM6 10v3.500h7.500V6H10" },
  pack: { fill: "M6.500 2.500h3v11h-3Z" },
  release: { stroke: "M12 8a4 4 0 1 1-8 0 4 4 0 0 1 8 0Z" },
  sorted: { stroke: "M8 3v10M4.500 9.500 8 13l3.500-3.500" },
  play: { fill: "M4.500 2.500 13 8l-8.500 5.500Z" },
  pause: { fill: "M4 3h3v10H4ZM9 3h3v10H9Z" },
  start: { stroke: "M3.500 3.500v9M12.500 3.500 6 8l6.500 4.500Z" },
  end: { stroke: "M12.500 3.500v9M3.500 3.500 10 8l-6.500 4.500Z" },
  copy: { stroke: "M5.500 5.500h8v8h-8ZM10.500 5.500v-3h-8v8h3" },
  export: { stroke: "M8 10V2.500M5 5l3-3 3 3M3 8.500v5h10v-5" },
  path: { stroke: "M3 13V9.500h10V3M10.500 5.500 13 3l2.500 2.500" },
  zero: { stroke: "M11 8c0 3-1.200 4.800-3 4.800S5 11 5 8s1.200-4.800 3-4.800S11 5 11 8Z" },
  nan: { fill: "M8 1.500 15 14H1Z", stroke: "M8 6v3.500M8 11.500v.2" },
  check: { stroke: "M3.500 8.500 6.500 11.500 12.500 4.500" },
  none: { stroke: "M12 8a4 4 0 1 1-8 0 4 4 0 0 1 8 0ZM3.500 12.500l9-9" },
  compiled: { stroke: "M2 3.500h12v3H2ZM2 10.500h12v3H2ZM5 6.500v4M10.500 6.500v4" },
  failed: {
    fill: "M15 8A7 7 0 1 1 1 8a7 7 0 0 1 14 0Z",
    stroke: "M5.500 5.500l5 5M10.500 5.500l-5 5",
  },
};

/** @typedef {keyof typeof GLYPHS} GlyphName */

/** @type {Map<string, Path2D>} */
const paths = new Map();

/**
 * Paint a glyph on a canvas, centered at (x, y).
 *
 * @param {CanvasRenderingContext2D} ctx
 * @param {GlyphName} name
 * @param {number} x
 * @param {number} y
 * @param {number} size
 * @param {string} color
 * @param {string} [inner] color of the strokes on a filled glyph
 */
export function paintGlyph(ctx, name, x, y, size, color, inner = color) {
  /** @type {Glyph} */
  const glyph = GLYPHS[name];
  const scale = size / 16;
  ctx.save();
  ctx.translate(x - size / 2, y - size / 2);
  ctx.scale(scale, scale);
  if (glyph.fill) {
    ctx.fillStyle = color;
    ctx.fill(pathOf(glyph.fill));
  }
  if (glyph.stroke) {
    ctx.setLineDash([]);
    ctx.lineWidth = 1.6 / Math.min(1, scale * 1.25);
    ctx.lineCap = ctx.lineJoin = "round";
    ctx.strokeStyle = glyph.fill ? inner : color;
    ctx.stroke(pathOf(glyph.stroke));
  }
  ctx.restore();
}

/**
 * @param {string} shape
 * @returns {Path2D}
 */
function pathOf(shape) {
  let path = paths.get(shape);
  if (!path) {
    // SvgContext needs the path's text.
    path = Object.assign(new Path2D(shape), { shape });
    paths.set(shape, path);
  }
  return path;
}

/**
 * Return a glyph as an element, in the color of the text around it.
 *
 * @param {GlyphName | Glyph} glyph
 * @param {string} [extraClasses]
 * @returns {SVGSVGElement}
 */
export function icon(glyph, extraClasses = "") {
  const namespace = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(namespace, "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("class", `agv-icon ${extraClasses}`.trim());
  svg.setAttribute("aria-hidden", "true");
  /** @type {Glyph} */
  const { fill, stroke } = typeof glyph === "string" ? GLYPHS[glyph] : glyph;
  for (const [className, shape] of [
    ["agv-icon-fill", fill],
    [fill ? "agv-icon-inner" : "agv-icon-line", stroke],
  ]) {
    if (!shape) continue;
    const path = document.createElementNS(namespace, "path");
    path.setAttribute("d", shape);
    path.setAttribute("class", /** @type {string} */ (className));
    svg.append(path);
  }
  return svg;
}
