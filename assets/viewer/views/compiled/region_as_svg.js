// @ts-check
/** Draws the marks of a picture of a compiled region; their coordinates come from Python. */

import { h, listen } from "../../dom.js";

const NAMESPACE = "http://www.w3.org/2000/svg";
const FRAMES = ["lane", "block", "checkpoint"];

/**
 * @typedef {object} Drawn
 * @property {SVGElement} element
 * @property {number[]} ribbons items of saved values
 * @property {(items: number[]) => void} mark highlights items
 * @property {(left: number) => void} pin keeps the names of the lanes in sight
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
 * @param {import("../../types.js").Scene} scene
 * @param {import("../../types.js").SceneCompiledPicture} picture
 * @param {(item: number) => void} select called with -1 for the background
 * @returns {Drawn}
 */
export function drawPicture(scene, picture, select) {
  const { width, height } = picture;
  const label = `${scene.compiled_regions[picture.region].name}, by ${picture.detail}`;
  const viewBox = `0 0 ${width} ${height}`;
  const element = shape("svg", { width, height, viewBox, role: "img", "aria-label": label });
  element.setAttribute("class", "agv-compiled-picture");
  element.style.setProperty("--width", `${width}px`);
  const names = shape("g", {});
  names.append(shape("rect", { x: -16, y: 0, width: 106, height, class: "agv-k-names" }));
  /** @type {Map<number, SVGElement[]>} */
  const marks = new Map();
  const ribbons = new Set();
  for (const mark of scene.compiled_marks) {
    if (mark.picture !== picture.index) continue;
    const { x, y, text, item } = mark;
    const styles = mark.style.split(" ");
    const className = styles.map((style) => `agv-k-${style}`).join(" ");
    const made =
      mark.shape === "text"
        ? shape("text", { x, y, class: className })
        : mark.shape === "path"
          ? shape("path", { d: text, "stroke-width": mark.width || 1.2, class: className })
          : shape("rect", {
              ...{ x, y, width: mark.width, height: mark.height, class: className },
              rx: FRAMES.includes(styles[0]) ? 8 : styles[0] === "bar" ? 1 : 4,
            });
    if (mark.shape === "text") made.textContent = text;
    if (item >= 0) {
      made.dataset.item = String(item);
      const list = marks.get(item) ?? [];
      marks.set(item, list);
      list.push(made);
      if (styles[0] === "chip") ribbons.add(item);
    }
    (x === 10 && mark.shape === "text" ? names : element).append(made);
  }
  element.append(names);
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
  const pin = (/** @type {number} */ left) => {
    const scale = width / (element.getBoundingClientRect().width || width);
    names.setAttribute("transform", `translate(${left * scale} 0)`);
    names.classList.toggle("agv-pinned", left > 8);
  };
  return { element, ribbons: [...ribbons], mark, pin };
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
