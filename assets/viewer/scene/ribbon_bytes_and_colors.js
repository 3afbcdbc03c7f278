// @ts-check
/** Bytes that the ribbons of the fold hold, and the colors of kinds of saved tensors. */

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
 * @param {string} theme
 * @returns {Record<string, string>} by name of the kind
 */
export function kindColors({ saved_kinds }, theme) {
  return Object.fromEntries(
    saved_kinds.map(({ name, light, dark }) => [name, theme === "dark" ? dark : light]),
  );
}

/** @type {WeakMap<Scene, Map<number, string>>} by id of the storage */
const kinds = new WeakMap();

/**
 * @param {Scene} scene
 * @param {number} storageId
 * @returns {string} the title of the kind of a saved storage
 */
export function kindOfStorage(scene, storageId) {
  let known = kinds.get(scene);
  if (!known) {
    known = new Map();
    kinds.set(scene, known);
    const titles = new Map(scene.saved_kinds.map(({ name, title }) => [name, title]));
    for (const { kind, members } of scene.ribbons) {
      for (const at of members) {
        known.set(scene.counted_storages[at].storage_id, titles.get(kind) ?? kind);
      }
    }
  }
  return known.get(storageId) ?? "in folds that are not drawn";
}

/**
 * @param {Scene} scene
 * @param {string} title of a kind
 * @param {string} theme
 * @returns {string | undefined} its color
 */
export function kindHue(scene, title, theme) {
  const kind = scene.saved_kinds.find((each) => each.title === title);
  return kind && (theme === "dark" ? kind.dark : kind.light);
}

/**
 * @param {Scene} scene
 * @returns {number} index of the fold that is shown first: that with the most bytes held at once
 */
export function largestFold({ folds }) {
  let best = folds.length ? 0 : -1;
  for (const { index, peak_nbytes, drawn } of folds) {
    if (drawn && peak_nbytes > folds[best].peak_nbytes) best = index;
  }
  return best;
}

/**
 * @param {Scene} scene
 * @returns {boolean} whether what no backward read is what it did not reach
 */
export const isStopped = ({ summary }) => summary.error_type !== "";
