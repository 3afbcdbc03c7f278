// @ts-check
/** Parts that several kinds of details share. */

import { button, h } from "../../dom.js";
import { fixOf } from "../../views/source/excerpt.js";
import { icon } from "../../canvas/icons.js";

/** @typedef {import("../../store.js").Store} Store */

/**
 * @param {string} title
 * @param {string} aside
 * @param {string} below
 * @param {string} place
 * @param {boolean} failed
 * @param {HTMLElement[]} copies buttons that copy name, path and line
 * @returns {HTMLElement}
 */
export function titleOf(title, aside, below, place, failed, copies = []) {
  return h(
    "header",
    { class: "agv-section agv-title" },
    h(
      "div",
      { class: "agv-title-line" },
      failed && h("span", { class: "agv-mutation" }, icon("failed", "agv-icon-16")),
      h("h3", { text: title, title }),
      h("span", { class: "agv-muted", text: aside }),
    ),
    h(
      "div",
      { class: "agv-title-line agv-muted" },
      h("span", { class: "agv-grow", text: below, title: below }),
      h("span", { class: "agv-mono", text: place }),
    ),
    copies.length > 0 && h("div", { class: "agv-copies" }, ...copies),
  );
}

/**
 * @param {Store} store
 * @param {number[]} findings
 * @returns {HTMLElement[]}
 */
export function findingParts(store, findings) {
  return findings.map((at) => {
    const finding = store.scene.findings[at];
    const show = () => {
      store.showFinding(at);
      store.show("findings");
    };
    const card = h(
      "div",
      { class: "agv-card" },
      h("div", { class: "agv-card-title", text: finding.title }),
      finding.fix && fixOf(finding.fix),
      button("Show this finding", "agv-link", show, "Show finding"),
    );
    return h("section", { class: "agv-section" }, card);
  });
}

/**
 * A line that selects a node.
 *
 * @param {Store} store
 * @param {number} index
 * @param {string} aside
 * @returns {HTMLElement}
 */
export function itemRow(store, index, aside) {
  const { name, op } = store.scene.nodes[index];
  return button(
    `Show ${name}`,
    "agv-item",
    () => store.reveal({ kind: "node", index }),
    h("span", { class: "agv-backward", text: name }),
    h("span", { class: "agv-muted", text: op }),
    h("span", { class: "agv-muted agv-end", text: aside }),
  );
}
