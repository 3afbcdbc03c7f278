// @ts-check
/** The bytes that a ribbon holds at a time, and the fold that held the most. */

import { heldCurve, heldIn } from "./curve_of_bytes_held.js";

/** @typedef {import("../types.js").SceneRibbon} Ribbon */
/** @typedef {import("../types.js").Scene} Scene */

/** @type {WeakMap<Ribbon, import("./curve_of_bytes_held.js").HeldCurve>} */
const curves = new WeakMap();

/**
 * Return the bytes that a ribbon holds at a time.
 *
 * @param {Scene} scene
 * @param {Ribbon} ribbon
 * @param {number} time
 * @returns {number}
 */
export function heldBytes({ counted_storages: storages }, ribbon, time) {
  let curve = curves.get(ribbon);
  if (!curve) {
    curve = heldCurve(ribbon.members.map((at) => storages[at]));
    curves.set(ribbon, curve);
  }
  return heldIn(curve, time);
}

/**
 * @param {Scene} scene
 * @returns {number} index of the fold that is shown first: that with the most bytes held at once;
 *   of equal ones the last, since a first step may contain warm-up
 */
export function largestFold({ folds }) {
  let [best, most] = [folds.length ? 0 : -1, 0];
  folds.forEach(({ peak_nbytes, shared_nbytes = 0, drawn }, at) => {
    if (drawn && peak_nbytes + shared_nbytes >= most) {
      [best, most] = [at, peak_nbytes + shared_nbytes];
    }
  });
  return best;
}
