// @ts-check
/** Panels and tables of the views. */

import { button, h } from "../dom.js";
import { formatPlace } from "../scene/format_numbers_and_names.js";

/**
 * @param {import("../shared_view_state.js").Store} store
 * @param {{filename: string, lineno: number}} line
 * @returns {HTMLElement} its place, which shows it in the source view
 */
export function lineLink(store, { filename, lineno }) {
  const place = formatPlace(filename, lineno);
  return button(`Show ${place}`, "agv-link", () => store.showLine(filename, lineno), place);
}

/**
 * @param {{element: HTMLElement, draw: () => void, destroy: () => void}} view
 * @returns {import("./registry.js").MountedView} what it is for the page
 */
export const mounted = (view) => ({
  elements: [view.element],
  redraw: () => view.draw(),
  destroy: () => view.destroy(),
});

/**
 * @param {"wide" | "table" | "side"} place in the grid of the view
 * @param {(Node | false | null)[]} head
 * @param {Node[]} body
 * @returns {HTMLElement}
 */
export function panel(place, head, ...body) {
  return h("section", `agv-panel agv-panel-${place}`, h("div", "agv-view-head", ...head), ...body);
}

/**
 * Return a panel body with a table, whose columns from `first` to `last` are aligned right.
 *
 * @param {string[]} head
 * @param {number} first
 * @param {number} last
 * @param {HTMLElement} body
 * @param {{name: number, columns: string}} [stacked] in a narrow viewer, the column that is a line
 *   of its own above the others, and their widths
 * @returns {HTMLElement}
 */
export function table(head, first, last, body, stacked) {
  const cells = head.map((text, at) =>
    h(
      "th",
      at < first || at > last ? "" : "agv-right",
      text,
      !text && h("span", "agv-visually-hidden", "status"),
    ),
  );
  const element = h(
    "table",
    "agv-table agv-table-sorted",
    h("thead", {}, h("tr", {}, ...cells)),
    body,
  );
  if (stacked) {
    cells[stacked.name].classList.add("agv-stacked-name");
    element.classList.add("agv-table-stacked");
    element.style.setProperty("--stacked", stacked.columns);
  }
  return h("div", { class: "agv-panel-body", attrs: { tabindex: 0 } }, element);
}
