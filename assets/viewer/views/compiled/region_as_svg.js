// @ts-check
/** Draws the marks of a picture of a compiled region; their coordinates come from Python. */

import { h, listen } from "../../dom.js";

const NAMESPACE = "http://www.w3.org/2000/svg";
const FRAMES = ["lane", "block", "checkpoint"];

/** @param {{style: string}} mark */
const isAround = ({ style }) => FRAMES.includes(style.split(" ")[0]);

/** Width of the names of the lanes. */
const NAMES = 90;

/** Pictures that are wider have their columns below each other. */
export const LEAST_SCALE = 0.8;

/**
 * @typedef {object} Drawn
 * @property {SVGElement} element
 * @property {number[]} ribbons items of saved values
 * @property {(items: number[]) => void} mark highlights items
 */

/**
 * @param {string} tag
 * @param {Record<string, string | number>} attributes
 * @returns {SVGElement}
 */
function shape(tag, attributes) {
  const element = document.createElementNS(NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  return element;
}

/**
 * Return the parts of a picture whose columns fit a width, as lines of a text do.
 *
 * @param {import("../../types.js").SceneCompiledMark[]} marks
 * @param {number} right where the last column ends
 * @param {number} room
 * @returns {[from: number, to: number][]}
 */
export function partsOf(marks, right, room) {
  const boxes = marks.filter((mark) => mark.shape === "rect" && !isAround(mark));
  /** @type {number[]} */
  const ends = [];
  let end = NAMES;
  for (const { x, width } of boxes.sort((a, b) => a.x - b.x)) {
    if (x > end && end > NAMES) ends.push((x + end) / 2);
    end = Math.max(end, x + width);
  }
  const starts = [NAMES];
  [...ends, right].forEach((end, at) => {
    const start = starts[starts.length - 1];
    if (end - start > room && ends[at - 1] > start) starts.push(ends[at - 1]);
  });
  return starts.map((from, at) => [from, starts[at + 1] ?? right]);
}

/**
 * @param {import("../../types.js").Scene} scene
 * @param {import("../../types.js").SceneCompiledPicture} picture
 * @param {(item: number) => void} select called with -1 for the background
 * @param {number} [room] width; columns that do not fit are drawn below the others
 * @returns {Drawn}
 */
export function drawPicture(scene, picture, select, room = Infinity) {
  const [own, legend] = [0, 1].map((isLegend) =>
    scene.compiled_marks.filter(
      (mark, at) => mark.picture === picture.index && Number(at >= picture.legend) === isLegend,
    ),
  );
  /** @type {Map<number, SVGElement[]>} */
  const marks = new Map();
  const ribbons = new Set();
  const made = (/** @type {import("../../types.js").SceneCompiledMark} */ mark, right = 0) => {
    const { x, y, text, item, height } = mark;
    const styles = mark.style.split(" ");
    const className = styles.map((style) => `agv-k-${style}`).join(" ");
    const width = right ? right - x : mark.width;
    const result =
      mark.shape === "text"
        ? shape("text", { x, y, class: className })
        : mark.shape === "path"
          ? shape("path", { d: text, "stroke-width": width || 1.2, class: className })
          : shape("rect", {
              ...{ x, y, width, height, class: className },
              rx: FRAMES.includes(styles[0]) ? 8 : styles[0] === "bar" ? 1 : 4,
            });
    if (mark.shape === "text") result.textContent = text;
    if (item >= 0) {
      result.dataset.item = String(item);
      const list = marks.get(item) ?? [];
      marks.set(item, list);
      list.push(result);
      if (styles[0] === "chip") ribbons.add(item);
    }
    return result;
  };
  const [first] = legend.filter((mark) => mark.shape === "text");
  const height = first ? first.y - 16 : picture.height;
  // A picture that is a little wider than the view is drawn smaller.
  const parts = partsOf(own, picture.width, room / LEAST_SCALE - NAMES);
  const whole = NAMES + Math.max(...parts.map(([from, to]) => to - from));
  /** @type {SVGElement[]} */
  const children = [];
  let [x, y] = [0, 0];
  for (const [from, to] of parts) {
    const part = shape("g", { transform: `translate(0 ${y})` });
    const width = to - from;
    const viewBox = `${from} 0 ${width} ${height}`;
    const columns = shape("svg", { x: NAMES, width, height, viewBox });
    for (const mark of own) {
      const isLane = mark.style === "lane";
      const isName = mark.x === 10 && mark.shape === "text";
      if (isLane || isName) part.append(made(mark, isLane ? NAMES + width : 0));
      else if (
        mark.shape === "path" ||
        (mark.x < to && mark.x + (isAround(mark) ? mark.width : 0) >= from)
      )
        columns.append(made(mark));
    }
    part.append(columns);
    children.push(part);
    y += height + 12;
  }
  /** @type {SVGElement[]} */
  let entry = [];
  for (const mark of legend) {
    entry.push(made(mark));
    if (mark.shape !== "text") continue;
    const width = mark.width + 43;
    if (x && x + width > whole) [x, y] = [0, y + 20];
    const viewBox = `${mark.x - 37} ${mark.y - 12} ${width} 16`;
    const svg = shape("svg", { x, y, width, height: 16, viewBox });
    svg.append(...entry);
    children.push(svg);
    x += width;
    entry = [];
  }
  const scale = Math.min(1, room / whole);
  const end = y + 20;
  const size = { width: whole * scale, height: end * scale, viewBox: `0 0 ${whole} ${end}` };
  const label = `${scene.compiled_regions[picture.region].name}, by ${picture.detail}`;
  const attributes = { ...size, role: "img", "aria-label": label };
  const element = shape("svg", { ...attributes, class: "agv-compiled-picture" });
  element.append(...children);
  listen(element, "click", ({ target }) => {
    select(Number(/** @type {SVGElement} */ (target).dataset.item ?? -1));
  });
  /** @type {SVGElement[]} */
  let lit = [];
  const mark = (/** @type {number[]} */ items) => {
    for (const each of lit) each.classList.remove("agv-on");
    lit = items.flatMap((item) => marks.get(item) ?? []);
    for (const each of lit) each.classList.add("agv-on");
    element.classList.toggle("agv-some", lit.length > 0);
  };
  return { element, ribbons: [...ribbons], mark };
}

/**
 * Return a swatch for a saved value: the color of its ribbon.
 *
 * @param {string} kind
 * @returns {HTMLElement}
 */
export function swatch(kind) {
  return h("span", `agv-swatch agv-k-${kind}`);
}
