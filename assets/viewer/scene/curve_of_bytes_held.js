// @ts-check
/** The bytes that some storages hold at any time, summed once and looked up for each picture. */

/** @typedef {{times: number[], held: number[]}} HeldCurve bytes from each time on */

/**
 * @param {Iterable<import("../types.js").SceneCountedStorage>} storages
 * @returns {HeldCurve}
 */
export function heldCurve(storages) {
  /** @type {[time: number, change: number][]} */
  const changes = [];
  for (const { holds, nbytes } of storages) {
    holds.forEach((time, at) => time >= 0 && changes.push([time, at % 2 ? -nbytes : nbytes]));
  }
  changes.sort((a, b) => a[0] - b[0]);
  let sum = 0;
  return {
    times: changes.map(([time]) => time),
    held: changes.map(([, change]) => (sum += change)),
  };
}

/**
 * @param {HeldCurve} curve
 * @param {number} time
 * @returns {number}
 */
export const heldIn = ({ times, held }, time) => held[lastAt(times, time)] ?? 0;

/**
 * @param {number[]} sorted
 * @param {number} time
 * @returns {number} index of the last value that is not larger, -1 without one
 */
export function lastAt(sorted, time) {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= time) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
