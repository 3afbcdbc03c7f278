// @ts-check
/** Panels and tables of the views. */

import { h } from "../dom.js";

/**
 * @param {"wide" | "table" | "side"} place in the grid of the view
 * @param {(Node | false | null)[]} head
 * @param {Node[]} body
 * @returns {HTMLElement}
 */
export function panel(place, head, ...body) {
  return h(
    "section",
    { class: `agv-panel agv-panel-${place}` },
    h("div", { class: "agv-view-head" }, ...head),
    ...body,
  );
}

/**
 * Return a panel body with a table, whose columns from `right` on are aligned right.
 *
 * @param {string[]} head
 * @param {number} right
 * @param {HTMLElement} body
 * @returns {HTMLElement}
 */
export function table(head, right, body) {
  const cells = head.map((text, at) => h("th", { text, class: at < right ? "" : "agv-right" }));
  return h(
    "div",
    { class: "agv-panel-body" },
    h(
      "table",
      { class: "agv-table agv-table-sorted" },
      h("thead", {}, h("tr", {}, ...cells)),
      body,
    ),
  );
}
