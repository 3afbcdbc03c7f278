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

/**
 * @param {import("../types.js").SceneSummary} summary
 * @returns {string} "" without a warm-up
 */
export const warmUpText = ({ warm_up: factor }) =>
  factor
    ? `step 0 is warm-up: ${factor < 10 ? factor.toFixed(1) : formatCount(Math.round(factor))}× the time of the longest other step`
    : "";
