// @ts-check
/** Figures of the recording or of a step as texts: bytes at the peak, times, nodes drawn. */

import { formatBytes, formatCount, formatDuration, plural } from "./format_numbers_and_names.js";
import { compileTimes, idleTimes, olderSteps, overlapOf } from "./idle_and_compile_times.js";
import { isStopped } from "./sum_and_describe_saved_bytes.js";
import { peakIn } from "./storage_holds.js";
import { stepOfNode } from "./step_of_time_or_node.js";

/** @typedef {import("../shared_view_state.js").Store} Store */

/**
 * Return the figures of the recording, or of the step on display.
 *
 * @param {Store} store
 * @returns {[strong: string, rest: string][]}
 */
export function figuresOf({ scene, step }) {
  const { summary } = scene;
  const chosen = scene.steps[step];
  if (!chosen) {
    const held = formatBytes(summary.peak_nbytes + summary.older_nbytes);
    return [[held, " saved tensors at peak"], ...durations(scene, 0, summary.end_ns)];
  }
  const { start_ns, end_ns } = chosen;
  const held = formatBytes(peakIn(scene, chosen).nbytes + summary.older_nbytes);
  return [[held, " saved tensors at peak"], ...durations(scene, start_ns, end_ns)];
}

/**
 * @param {import("../types.js").Scene} scene
 * @param {number} start
 * @param {number} end
 * @returns {[strong: string, rest: string][]} the time in which something ran, and idle time
 */
function durations(scene, start, end) {
  const idle = idleTimes(scene);
  const active = end - start - overlapOf(idle, start, end);
  /** @type {[nanoseconds: number, rest: string][]} */
  const times = [
    [active, " active"],
    [overlapOf(compileTimes(scene), start, end), " of it compiling"],
    // What is idle in a step that failed, as a first import, is no part of its question.
    [isStopped(scene) ? 0 : overlapOf(idle, Math.max(start, olderSteps(scene)), end), " idle"],
  ];
  return times.filter(([ns], at) => !at || ns).map(([ns, rest]) => [formatDuration(ns), rest]);
}

/**
 * @param {Store} store
 * @param {Iterable<{kind: string, ref: number}>} boxes
 * @returns {string} "15 of 408 nodes drawn": the others are in closed groups, on edges or badges
 */
export function drawnNodes({ scene, step }, boxes) {
  const own = (/** @type {number} */ at) => step < 0 || stepOfNode(scene, scene.nodes[at]) === step;
  const drawn = [...boxes].filter(({ kind, ref }) => kind === "node" && own(ref)).length;
  const all = step < 0 ? scene.summary.nodes : [...scene.nodes].filter((_, at) => own(at)).length;
  const part = drawn < all ? `${formatCount(drawn)} of ` : "";
  return `${part}${plural(all, "node")}${step < 0 ? "" : ` of step ${scene.steps[step].number}`} drawn`;
}
