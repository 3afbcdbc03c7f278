// @ts-check
/** Buttons that switch the kind of the time axis, for all views that have one. */

import { choice } from "../dom.js";

/**
 * @param {import("../store.js").Store} store
 * @returns {HTMLElement}
 */
export function makeAxisSwitch(store) {
  const choose = (/** @type {string} */ kind) =>
    store.set("axis", /** @type {import("../scene/time_axis.js").AxisKind} */ (kind));
  const buttons = choice(["time", "events"], store.axis, choose);
  buttons.title = "Lay out by time, or one step for each event";
  store.subscribe(["axis"], () => {
    for (const each of buttons.children) {
      each.setAttribute("aria-pressed", String(each.textContent === store.axis));
    }
  });
  return buttons;
}
