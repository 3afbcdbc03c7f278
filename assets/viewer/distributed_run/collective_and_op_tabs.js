// @ts-check
/** The tabs below the heat map: the collectives, and the ops of two ranks. */

import { button, h } from "../dom.js";
import { plural } from "../scene/format_numbers_and_names.js";
import { HARMFUL } from "./collective_lanes.js";

/** @typedef {import("./types.js").RunScene} RunScene */

/**
 * @param {RunScene} scene
 * @param {{element: HTMLElement}[]} lanes
 * @param {HTMLElement} ops
 * @returns {[string, HTMLElement][]}
 */
export function bottomTabs(scene, lanes, ops) {
  const note = (/** @type {string} */ text) => h("p", "agv-empty-text", text);
  const hidden = scene.hidden_lanes
    ? [note(`${plural(scene.hidden_lanes, "other process group")} not shown`)]
    : [];
  const collectives = lanes.length
    ? lanes.map(({ element }) => element)
    : [note("No collective of several ranks was recorded.")];
  const none = note(
    "No rank ran other ops than the ranks that should do the same, or the ops of that step are " +
      "not in the recordings. run.compare(3, 17) compares any two ranks.",
  );
  return [
    ["Collectives", h("div", {}, ...collectives, ...hidden)],
    ["Ops of two ranks", scene.differences.length ? ops : h("div", {}, none)],
  ];
}

/**
 * @param {RunScene} scene
 * @returns {string}
 */
export function firstTab({ lanes, differences }) {
  const differs = lanes.some((each) =>
    each.lanes.some(({ states }) => states.some((state) => HARMFUL.has(state))),
  );
  return differs || !differences.length ? "Collectives" : "Ops of two ranks";
}

/**
 * Return a row of tabs; the pane of the first one is visible.
 *
 * @param {[name: string, pane: HTMLElement][]} tabs
 * @param {string} first
 * @returns {{element: HTMLElement, show: (name: string) => void}}
 */
export function makeTabs(tabs, first) {
  const names = h("span", { class: "agv-choice", attrs: { role: "group" } });
  const show = (/** @type {string} */ shown) => {
    tabs.forEach(([name, pane], at) => {
      pane.hidden = name !== shown;
      names.children[at].setAttribute("aria-pressed", String(name === shown));
    });
  };
  for (const [name] of tabs) names.append(button(name, "", () => show(name), name));
  show(first);
  const panes = tabs.map(([, pane]) => pane);
  const attrs = { tabindex: 0, role: "group", "aria-label": "Collectives and ops" };
  const body = h("div", { class: "agv-run-tab-body", attrs }, ...panes);
  const head = h("div", "agv-run-head", names);
  return { element: h("section", "agv-run-bottom", head, body), show };
}
