// @ts-check
/** The menu of the training steps, which chooses the one that all views show. */

import { h, listen } from "../dom.js";
import { largestFold } from "../scene/bytes_of_ribbons_and_folds.js";
import { livePeak } from "../scene/figures_of_step.js";
import { stepAt } from "../scene/step_of_time_or_node.js";

/** @typedef {import("../shared_view_state.js").Store} Store */

/**
 * Return a menu of the steps.
 *
 * @param {Store} store
 * @returns {HTMLElement | false} false if there is one step
 */
export function makeStepSwitch(store) {
  const { scene } = store;
  const { steps, folds, live_points: points } = scene;
  if (steps.length < 2) return false;
  // Of what the bytes in the bar are: all memory, if that was recorded.
  const peak = points.length
    ? steps[stepAt(scene, livePeak(scene, 0, Infinity).time)]
    : steps[folds[largestFold(scene)]?.step ?? -1];
  const option = (/** @type {string} */ text, /** @type {number} */ value) =>
    h("option", { text, attrs: { value } });
  const options = [...steps].map(({ number }, at) => option(`step ${number}`, at));
  const select = h(
    "select",
    { attrs: { "aria-label": "Step that all views show" } },
    option(peak ? `all steps · peak in step ${peak.number}` : "all steps", -1),
    ...options,
  );
  listen(select, "change", () => store.showStep(Number(select.value)));
  store.subscribe(["step"], () => (select.value = String(store.step)));
  return h("label", "agv-menu agv-step-menu", select);
}
