// @ts-check
/** Sentences that hold whether or not anything is wrong, each with the view that shows it. */

import { icon } from "../canvas/draw_icon.js";
import { button, h } from "../dom.js";

/**
 * @param {import("../shared_view_state.js").Store} store
 * @param {string} [topic] of the only ones that are returned
 * @returns {HTMLElement[]}
 */
export function factRows(store, topic) {
  const facts = store.scene.facts.filter((each) => !topic || each.topic === topic);
  return rowsOf(store, facts);
}

/**
 * @param {import("../shared_view_state.js").Store} store
 * @returns {HTMLElement[]} all of them, after the news that there are no findings
 */
export function factRowsOfRecording(store) {
  const { facts, findings } = store.scene;
  const none = { text: "No problems found", view: "findings", good: /** @type {const} */ (1) };
  return rowsOf(store, findings.length ? facts : [none, ...facts]);
}

/**
 * @param {import("../shared_view_state.js").Store} store
 * @param {Iterable<Pick<import("../types.js").SceneFact, "text" | "view" | "good"> & Partial<import("../types.js").SceneFact>>} facts
 * @returns {HTMLElement[]}
 */
function rowsOf(store, facts) {
  return [...facts].map(({ text, view, good, lines, topic, storage_id: id = -1 }) => {
    const index = store.scene.storages.findIndex((each) => each.storage_id === id);
    const show = () => {
      store.set("view", view);
      if (index >= 0) store.set("selected", { kind: "storage", index });
    };
    // Memory that is held is no harm.
    const isNeutral = lines || topic === "memory";
    const hue = good ? "agv-saved" : isNeutral ? "agv-muted" : "agv-mutation";
    return h(
      "div",
      "agv-fact",
      h("span", hue, icon(good ? "check" : isNeutral ? "release" : "findings")),
      store.hasView(view) ? button(text, "agv-link", show) : h("span", "", text),
    );
  });
}
