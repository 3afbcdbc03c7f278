// @ts-check
/** Intervals in which nothing ran or torch.compile compiled, and their overlap with a range. */

import { formatCount } from "./format_numbers_and_names.js";

/** @typedef {[start: number, end: number][]} Intervals in nanoseconds, without overlaps */

/**
 * @param {import("../types.js").Scene} scene
 * @returns {Intervals} in which torch.compile compiled
 */
export function compileTimes({ spans }) {
  return spans
    .filter(({ kind, depth }) => kind === "compile" && !depth)
    .map(({ start_ns, end_ns }) => [start_ns, end_ns]);
}

/**
 * @param {Intervals} intervals
 * @param {number} start
 * @param {number} end
 * @returns {number} nanoseconds of the intervals between start and end
 */
export function overlapOf(intervals, start, end) {
  return intervals.reduce(
    (sum, [from, to]) => sum + Math.max(0, Math.min(end, to) - Math.max(start, from)),
    0,
  );
}

/**
 * @param {import("../types.js").Scene} scene
 * @returns {Intervals} long ones in which neither an op nor a node ran, and nothing compiled
 */
export function idleTimes(scene) {
  const { idle_ns: idle = [] } = scene.summary;
  const compiles = compileTimes(scene).sort((a, b) => a[0] - b[0]);
  /** @type {Intervals} */
  const parts = [];
  for (let at = 0; at < idle.length; at += 2) {
    let start = idle[at];
    for (const [from, to] of compiles) {
      if (to <= start || from >= idle[at + 1]) continue;
      if (from > start) parts.push([start, from]);
      start = to;
    }
    if (start < idle[at + 1]) parts.push([start, idle[at + 1]]);
  }
  return parts;
}

/**
 * Return the time until which older steps ran of which no event was kept: it is not idle.
 *
 * @param {import("../types.js").Scene} scene
 * @returns {number} nanoseconds, 0 without such steps
 */
export const olderSteps = ({ steps, summary: { idle_ns: idle = [] } }) =>
  steps[0]?.number > 0 && idle[0] === 0 ? idle[1] : 0;

/** A first step is warm-up if it takes this many times as long as each other step. */
const WARM_UP = 2;

/**
 * Return how many times as long as the longest other step the first one of the program took, without
 * idle time: it allocates, loads kernels and compiles.
 *
 * @param {import("../types.js").Scene} scene
 * @returns {number} 0 if that is little, or if fewer than two other steps were recorded
 */
export function warmUp(scene) {
  if (scene.steps.length < 3 || scene.steps[0].number) return 0;
  const idle = idleTimes(scene);
  const [first, ...others] = [...scene.steps].map(
    ({ start_ns, end_ns }) => end_ns - start_ns - overlapOf(idle, start_ns, end_ns),
  );
  const factor = first / Math.max(1, ...others);
  return factor >= WARM_UP ? factor : 0;
}

/**
 * @param {import("../types.js").Scene} scene
 * @returns {string} "" without a warm-up
 */
export function warmUpText(scene) {
  const factor = warmUp(scene);
  const times = factor < 10 ? factor.toFixed(1) : formatCount(Math.round(factor));
  return factor ? `step 0 is warm-up: ${times}× as long as any other step` : "";
}
