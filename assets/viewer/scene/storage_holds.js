// @ts-check
/**
 * The times at which saved tensors keep storages alive, and the peak of what they hold in a range.
 */

import { stepAt } from "./step_of_time_or_node.js";

/** @typedef {import("../types.js").Scene} Scene */

/**
 * @param {Scene} scene
 * @param {{holds: number[]}} storage
 * @param {number} step index, -1 for all
 * @returns {boolean} whether a step saved a storage; what several steps save counts in each
 */
export const isSavedIn = (scene, { holds }, step) =>
  step < 0 || holds.some((start, at) => at % 2 === 0 && stepAt(scene, start) === step);

/** @type {WeakMap<Scene, Map<string, {nbytes: number, time: number}>>} */
const peaks = new WeakMap();

/**
 * Return the peak of what saved tensors held in a range, of equal ones the last: a first step may
 * contain warm-up.
 *
 * @param {Scene} scene
 * @param {{start_ns: number, end_ns: number}} range
 * @returns {{nbytes: number, time: number}}
 */
export function peakIn(scene, { start_ns, end_ns }) {
  const known = peaks.get(scene) ?? new Map();
  peaks.set(scene, known);
  const key = `${start_ns} ${end_ns}`;
  if (!known.has(key)) known.set(key, findPeak(scene, start_ns, end_ns));
  return known.get(key);
}

/**
 * @param {Scene} scene
 * @param {number} start_ns
 * @param {number} end_ns
 * @returns {{nbytes: number, time: number}}
 */
function findPeak({ counted_storages }, start_ns, end_ns) {
  /** @type {[time: number, change: number][]} */
  const changes = [];
  for (const { holds, nbytes } of counted_storages) {
    for (let at = 0; at < holds.length; at += 2) {
      const until = holds[at + 1] < 0 ? Infinity : holds[at + 1];
      if (holds[at] > end_ns || until <= start_ns) continue;
      changes.push([Math.max(start_ns, holds[at]), nbytes]);
      if (until <= end_ns) changes.push([until, -nbytes]);
    }
  }
  changes.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  let held = 0;
  const peak = { nbytes: 0, time: start_ns };
  for (const [time, change] of changes) {
    held += change;
    if (held >= peak.nbytes && held) Object.assign(peak, { nbytes: held, time });
  }
  return peak;
}

/**
 * @param {{holds: number[]}} storage
 * @param {number} time
 * @returns {boolean} whether a saved tensor keeps a storage alive at a time
 */
export const isHeldAt = ({ holds }, time) =>
  holds.some(
    (start, at) => at % 2 === 0 && start <= time && (holds[at + 1] < 0 || holds[at + 1] > time),
  );

/**
 * @param {Scene} scene
 * @param {number} step index, -1 for all
 * @returns {(storage: {holds: number[], at_peak: unknown}) => unknown} whether a storage is held at
 *   the peak of a step, or of the recording
 */
export function isHeldAtPeak(scene, step) {
  const chosen = scene.steps[step];
  const time = chosen && peakIn(scene, chosen).time;
  return (storage) => (chosen ? isHeldAt(storage, time) : storage.at_peak);
}
