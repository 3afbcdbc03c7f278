// @ts-check
/** The buttons on the left that switch between views. */

import { icon } from "../canvas/draw_icon.js";
import { button, h } from "../dom.js";
import { stepParts } from "./step_page_tabs.js";

/**
 * @param {import("../views/registry.js").View[]} views
 * @param {import("../shared_view_state.js").Store} store
 * @returns {HTMLElement}
 */
export function makeNavigationRail(views, store) {
  const rail = h("nav", { class: "agv-rail", attrs: { "aria-label": "Views" } });
  const [first, ...parts] = stepParts(views, store.scene);
  for (const view of views) {
    const { name, label, icon: glyph, badge, badgeStyle, exists } = view;
    if (exists?.(store.scene) === false || parts.includes(view)) continue;
    const show = () => store.set("view", name);
    const entry = button(label, "agv-rail-button", show, icon(glyph, "agv-icon-16"));
    entry.removeAttribute("aria-label"); // its text
    entry.dataset.view = name;
    entry.append(h("span", "", label));
    const count = badge?.(store.scene) ?? 0;
    const style = badgeStyle?.(store.scene) ?? "";
    if (count) entry.append(h("span", `agv-badge ${style}`, String(count)));
    rail.append(entry);
  }
  const markCurrent = () => {
    for (const child of rail.children) {
      const shown = parts.some(({ name }) => name === store.view) ? first.name : store.view;
      child.toggleAttribute("aria-current", child.getAttribute("data-view") === shown);
    }
  };
  store.subscribe(["view"], markCurrent);
  markCurrent();
  return rail;
}
