// @ts-check
/** One measure over the steps: a line for each series, and the values at the chosen step. */

import { h } from "../dom.js";

/** @typedef {import("./measures_to_chart.js").Measure} Measure */
/** @typedef {import("./received_steps.js").Step} Step */

const HEIGHT = 84;
const LEFT = 70;
const RIGHT = 8;
const TOP = 8;
const SVG = "http://www.w3.org/2000/svg";

/**
 * @param {string} tag
 * @param {Record<string, string | number>} attributes
 * @param {string} [text]
 * @returns {SVGElement}
 */
function svg(tag, attributes, text) {
  const element = /** @type {SVGElement} */ (document.createElementNS(SVG, tag));
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, `${value}`);
  if (text !== undefined) element.textContent = text;
  return element;
}

/**
 * Return the x coordinate of a step.
 *
 * @param {number} place
 * @param {number} count
 * @param {number} width
 */
export function xOf(place, count, width) {
  return LEFT + (count > 1 ? place / (count - 1) : 0.5) * (width - LEFT - RIGHT);
}

/**
 * Return the place of the step nearest to an x coordinate.
 *
 * @param {number} x
 * @param {number} count
 * @param {number} width
 */
export function placeAt(x, count, width) {
  const place = Math.round(((x - LEFT) / (width - LEFT - RIGHT)) * (count - 1));
  return Math.max(0, Math.min(count - 1, place));
}

/**
 * Return the panel of a measure.
 *
 * @param {Measure} measure
 * @param {Step[]} steps
 * @param {number} chosen place of a step, -1 for the newest
 * @param {number} width of the picture, in pixels
 * @returns {HTMLElement}
 */
export function drawChart(measure, steps, chosen, width) {
  const place = chosen < 0 ? steps.length - 1 : chosen;
  const drawn = measure.series.filter(({ values }) => values.some((each) => each !== undefined));
  const head = h(
    "div",
    "agv-live-head",
    h("span", "agv-live-name", measure.name),
    ...(drawn.length
      ? drawn.map((series) => valueText(series, measure, place))
      : [h("span", "agv-muted", measure.missing)]),
  );
  const panel = h("section", "agv-live-chart", head);
  if (drawn.length) panel.append(picture(measure, drawn, place, steps.length, width));
  return panel;
}

/**
 * @param {import("./measures_to_chart.js").Series} series
 * @param {Measure} measure
 * @param {number} place
 */
function valueText(series, measure, place) {
  const value = series.values[place];
  const known = value === null ? "NaN or infinite" : "–";
  const text = typeof value === "number" ? measure.format(value) : known;
  return h(
    "span",
    value === null ? "agv-mutation" : series.isMain ? "agv-strong" : "agv-muted",
    series.label && `${series.label}: `,
    text,
  );
}

/**
 * @param {Measure} measure
 * @param {import("./measures_to_chart.js").Series[]} drawn
 * @param {number} place
 * @param {number} count of steps
 * @param {number} width
 */
function picture(measure, drawn, place, count, width) {
  const finite = drawn.flatMap(({ values }) => values.filter((each) => typeof each === "number"));
  let low = measure.fromZero ? 0 : Infinity;
  let high = -Infinity;
  for (const each of finite) {
    low = Math.min(low, each);
    high = Math.max(high, each);
  }
  const range = high - low || Math.abs(high) || 1;
  if (high === low) low -= range / 2;
  const bottom = HEIGHT - 6;
  const y = (/** @type {number} */ value) => bottom - ((value - low) / range) * (bottom - TOP);
  const attributes = { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT };
  const root = svg("svg", { ...attributes, "aria-hidden": "true" });
  root.append(svg("line", { class: "agv-live-axis", x1: 0, x2: width, y1: bottom, y2: bottom }));
  const limits = [
    [high, TOP + 8],
    [low, bottom - 3],
  ];
  for (const [value, at] of high > low && finite.length > 1 ? limits : []) {
    const text = measure.format(value).replace(/ \(.*/, "");
    root.append(svg("text", { class: "agv-live-limit", x: 0, y: at }, text));
  }
  for (const series of [...drawn].sort((a, b) => Number(a.isMain) - Number(b.isMain))) {
    const { path, points } = linePath(series.values, (at) => xOf(at, count, width), y);
    const style = `stroke: var(--${measure.hue}); fill: var(--${measure.hue})`;
    const kind = series.isMain ? "agv-live-line" : "agv-live-line agv-live-part";
    root.append(svg("path", { class: kind, d: path, style: `${style}; fill: none` }));
    for (const [px, py] of points) {
      root.append(svg("circle", { cx: px, cy: py, r: 1.6, style: `${style}; stroke: none` }));
    }
    series.values.forEach((value, at) => {
      if (value !== null) return;
      const x = xOf(at, count, width);
      const d = `M${x - 4} ${TOP + 7}L${x} ${TOP}L${x + 4} ${TOP + 7}Z`;
      root.append(svg("path", { class: "agv-live-bad", d }));
    });
    const value = series.values[place];
    if (typeof value === "number" && series.isMain) {
      root.append(svg("circle", { cx: xOf(place, count, width), cy: y(value), r: 3, style }));
    }
  }
  const x = xOf(place, count, width);
  root.append(svg("line", { class: "agv-live-cursor", x1: x, x2: x, y1: 0, y2: bottom }));
  return root;
}

/**
 * Return the line through the known values. Where several steps share a pixel, the line goes
 * through the smallest and the largest of them; a value without neighbors is a point.
 *
 * @param {(number | null | undefined)[]} values
 * @param {(place: number) => number} x
 * @param {(value: number) => number} y
 */
function linePath(values, x, y) {
  /** @type {string[]} */
  const path = [];
  /** @type {[number, number][]} */
  const points = [];
  let column = NaN;
  let low = 0;
  let high = 0;
  let last = 0;
  let isOpen = false;
  const flush = () => {
    if (Number.isNaN(column)) return;
    if (low !== high) path.push(`L${column} ${y(low)}L${column} ${y(high)}L${column} ${y(last)}`);
    column = NaN;
  };
  values.forEach((value, place) => {
    if (typeof value !== "number") {
      flush();
      // A step that is not analyzed yet interrupts the line; so does NaN.
      isOpen = false;
      return;
    }
    const at = Math.round(x(place) * 2) / 2;
    if (at === column) {
      low = Math.min(low, value);
      high = Math.max(high, value);
      last = value;
      return;
    }
    flush();
    const follows = typeof values[place + 1] === "number";
    if (isOpen) path.push(`L${at} ${y(value)}`);
    else if (follows) path.push(`M${at} ${y(value)}`);
    else points.push([at, y(value)]);
    isOpen = true;
    [column, low, high, last] = [at, value, value, value];
  });
  flush();
  return { path: path.join(""), points };
}
