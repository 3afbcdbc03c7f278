// @ts-check
/** The bytes that saved tensors hold over the recording, and those without checkpoints, dashed. */

import { chartCanvas, h, onResize } from "../../dom.js";
import { paintTimes } from "../../canvas/paint_time_axis.js";
import { proportionalAxis } from "../../scene/time_axis.js";
import { paintHeld } from "../compare/overlaid_curves_of_bytes_held.js";

/**
 * @param {import("../../shared_view_state.js").Store} store
 * @param {() => import("../../canvas/theme.js").Palette} palette
 * @returns {{element: HTMLElement, draw: () => void} | null} null if those without are unknown
 */
export function makeHeldPicture({ scene, sceneIndex }, palette) {
  const { folds, memory, memory_without_checkpoints: without } = scene;
  if (!without.length) return null;
  const canvas = chartCanvas("Bytes held over time, with checkpoints and without");
  const axis = proportionalAxis(sceneIndex);
  const whole = axis.positionOf(sceneIndex.end);
  const share = (/** @type {number} */ time) => axis.positionOf(time) / whole;
  const curves = [without, memory].map((points) =>
    [...points].map(
      ({ time_ns, nbytes }) => /** @type {[number, number]} */ ([share(time_ns), nbytes]),
    ),
  );
  const turn = folds.length === 1 && folds[0].turn_ns >= 0 ? share(folds[0].turn_ns) : -1;
  const draw = () =>
    paintHeld(canvas, palette(), curves, turn, (pen, x, y) => {
      const at = (/** @type {number} */ time) => x(share(time));
      paintTimes(pen, at, [0, sceneIndex.end], y, { top: y - 12, bottom: y - 6 }, axis);
    });
  const legend = h(
    "div",
    "agv-muted",
    h("b", "", "Held over the recording"),
    " · dashed: without checkpoints, estimated · solid: recorded",
  );
  const element = h("div", "agv-held-picture", legend, h("div", "agv-two-fold-canvas", canvas));
  onResize(element, draw);
  return { element, draw };
}
