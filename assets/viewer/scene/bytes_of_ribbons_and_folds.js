// @ts-check
/** The bytes that a ribbon holds at a time, and the fold that held the most. */

import { columnOf } from "../payload/lazy_rows.js";
import { isHeldAt } from "./storage_holds.js";
import { heldCurve, heldIn } from "./curve_of_bytes_held.js";

/** @typedef {import("../types.js").SceneRibbon} Ribbon */
/** @typedef {import("../types.js").Scene} Scene */
/** @typedef {import("./predict_memory.js").Held} Held */

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
 * Return the bytes of storages at the peak of a fold, as recorded or as a plan predicts.
 *
 * @param {Scene} scene
 * @param {import("../types.js").SceneFold} fold
 * @param {Held} [held] as a plan predicts
 * @returns {(at: number) => number} of an index into the counted storages
 */
export function bytesAtPeak({ counted_storages: storages }, { peak_ns }, held) {
  const ids = columnOf(storages, "storage_id");
  const sizes = columnOf(storages, "nbytes");
  const holds = /** @type {ArrayLike<any>} */ (columnOf(storages, "holds"));
  return (at) =>
    held
      ? (held.atPeak.get(ids[at]) ?? 0)
      : isHeldAt({ holds: holds[at] }, peak_ns)
        ? sizes[at]
        : 0;
}

/**
 * @param {Iterable<{kind: string, members: number[]}>} ribbons
 * @param {(at: number) => number} bytesOf
 * @returns {Map<string, number>} bytes held by kind
 */
export function kindsHeld(ribbons, bytesOf) {
  const sums = new Map();
  for (const { kind, members } of ribbons) {
    for (const at of members) {
      const nbytes = bytesOf(at);
      if (nbytes) sums.set(kind, (sums.get(kind) ?? 0) + nbytes);
    }
  }
  return sums;
}

/**
 * @param {Scene} scene
 * @param {number} [step] index of the only step that counts, -1 for all
 * @returns {number} index of the fold that is shown first: that with the most bytes held at once;
 *   of equal ones the last, since a first step may contain warm-up; -1 without one
 */
export function largestFold({ folds }, step = -1) {
  let [best, most] = [step < 0 && folds.length ? 0 : -1, 0];
  folds.forEach((fold, at) => {
    const held = fold.peak_nbytes + (fold.shared_nbytes ?? 0);
    if (fold.drawn && held >= most && (step < 0 || fold.step === step)) [best, most] = [at, held];
  });
  return best;
}

/**
 * Return the fold of a replayed time: that whose backward runs then or comes next.
 *
 * @param {Scene} scene
 * @param {number} time
 * @param {number} shown index of the fold on display, which stays between two of them
 * @returns {number} its index
 */
export function foldAt({ folds, steps }, time, shown) {
  // They are in the order of their backwards.
  const begin = (/** @type {import("../types.js").SceneFold} */ { start_ns, step }) =>
    Math.min(start_ns, steps[step]?.start_ns ?? start_ns);
  const found = folds.find((fold) => fold.drawn && begin(fold) <= time && time <= fold.end_ns);
  return found?.index ?? shown;
}
