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
  const { start_ns, end_ns } = chosen ?? { start_ns: 0, end_ns: summary.end_ns };
  const peak = chosen ? peakIn(scene, chosen).nbytes : summary.peak_nbytes;
  const all = livePeak(scene, start_ns, end_ns);
  const saved = scene.live_points[all.at]?.saved ?? 0;
  /** @type {[strong: string, rest: string][]} */
  const held = all.nbytes
    ? [[formatBytes(all.nbytes), ` in all at peak, of it ${formatBytes(saved)} saved`]]
    : [[formatBytes(peak + summary.older_nbytes), " saved tensors at peak"]];
  return [...held, ...durations(scene, start_ns, end_ns)];
}

/** Of all memory, in the order of the stack. */
export const ORDER = /** @type {const} */ ([
  "parameters",
  "optimizer_state",
  "gradients",
  "saved",
  "other",
]);

/**
 * @param {import("../types.js").Scene} scene
 * @param {number} start_ns
 * @param {number} end_ns
 * @returns {{nbytes: number, time: number, at: number}} the highest point of all memory, of equal
 *   ones the first, as in Python
 */
export function livePeak({ live_points: points }, start_ns, end_ns) {
  const found = { nbytes: 0, time: start_ns, at: 0 };
  points.forEach((each, at) => {
    const time = each.time_ns;
    const nbytes = ORDER.reduce((sum, kind) => sum + each[kind], 0);
    const until = points[at + 1]?.time_ns ?? Infinity;
    if (time > end_ns || until <= start_ns || nbytes <= found.nbytes) return;
    Object.assign(found, { nbytes, time: Math.max(time, start_ns), at });
  });
  return found;
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
 * @returns {string} "15 of 408 nodes drawn": the others are in closed groups
 */
export function drawnNodes({ scene, step }, boxes) {
  const own = (/** @type {number} */ at) => step < 0 || stepOfNode(scene, scene.nodes[at]) === step;
  const drawn = [...boxes].filter(({ kind, ref }) => kind === "node" && own(ref)).length;
  const all = step < 0 ? scene.nodes.length : [...scene.nodes].filter((_, at) => own(at)).length;
  const part = drawn < all ? `${formatCount(drawn)} of ` : "";
  return `${part}${plural(all, "node")}${step < 0 ? "" : ` of step ${scene.steps[step].number}`} drawn`;
}
