// @ts-check
/** The tabs of the page of the step, one for each part: fold, source lines, tensors, memory. */

import { button, h } from "../dom.js";

/**
 * Return the views that are parts of the page of the step; none without a fold.
 *
 * @param {import("../views/registry.js").View[]} views
 * @param {import("../types.js").Scene} scene
 * @returns {import("../views/registry.js").View[]}
 */
export function stepParts(views, scene) {
  const parts = views.filter(({ part, exists }) => part && exists?.(scene) !== false);
  return parts[0]?.name === "fold" ? parts : [];
}

/**
 * @param {import("../views/registry.js").View[]} views
 * @param {import("../shared_view_state.js").Store} store
 * @returns {HTMLElement}
 */
export function makeStepPageTabs(views, store) {
  const parts = stepParts(views, store.scene);
  const entries = parts.map(({ name, part }) => {
    const entry = button(part ?? name, "agv-part", () => store.set("view", name), part ?? name);
    entry.removeAttribute("aria-label"); // its text
    entry.dataset.view = name;
    return entry;
  });
  const bar = h("nav", { class: "agv-parts", attrs: { "aria-label": "Step" } }, ...entries);
  const update = () => {
    bar.hidden = !parts.some(({ name }) => name === store.view);
    for (const entry of entries) {
      entry.toggleAttribute("aria-current", entry.dataset.view === store.view);
    }
  };
  store.subscribe(["view"], update);
  update();
  return bar;
}
