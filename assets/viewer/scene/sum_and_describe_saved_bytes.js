// @ts-check
/**
 * Sums of saved bytes, and their texts. What "saved", "held at peak", "recomputed" and "released"
 * mean is defined in `autogradviz/analysis/saved_memory.py`; each storage is counted once, and none
 * is left out.
 */

import { formatBytes, plural } from "./format_numbers_and_names.js";
import { isHeldAt, isSavedIn, peakIn } from "./storage_holds.js";

/** @typedef {import("../types.js").Scene} Scene */
/** @typedef {import("../types.js").SceneCountedStorage} CountedStorage */

/** The definitions, for the help. */
export const DEFINITIONS = /** @type {[word: string, meaning: string][]} */ ([
  ["saved", "bytes of the storages that saved tensors of the forward keep alive"],
  ["recomputed", "bytes of storages that only a recomputation saved"],
  ["held at peak", "the part of both that is alive when the sum is highest"],
  ["released", "the part of both that nothing keeps alive at the end"],
  ["still held", "the rest: saved + recomputed = released + still held"],
  [
    "counted",
    "each storage once, with all its bytes; no parameters and buffers, no tensors that " +
      "checkpointing packed or that hooks copied",
  ],
]);

/**
 * Return the bytes that were held at a time.
 *
 * @param {import("../types.js").Scene} scene
 * @param {number} time
 * @returns {number}
 */
export function heldBytesAt(scene, time) {
  let sum = 0;
  for (const each of scene.counted_storages) if (isHeldAt(each, time)) sum += each.nbytes;
  return sum;
}

/**
 * Return the summary of the recording, or that of a step: what it saved, and its peak.
 *
 * @param {Scene} scene
 * @param {number} step index, -1 for all
 * @returns {Scene["summary"]}
 */
export function summaryOf(scene, step) {
  const { summary } = scene;
  const chosen = scene.steps[step];
  if (!chosen) return summary;
  const own = [...scene.counted_storages].filter((each) => isSavedIn(scene, each, step));
  const sum = (/** @type {(storage: CountedStorage) => unknown} */ counts) =>
    own.reduce((total, each) => total + (counts(each) ? each.nbytes : 0), 0);
  const { start_ns, end_ns } = chosen;
  const without = [...scene.memory_without_checkpoints].filter(
    ({ time_ns }) => start_ns < time_ns && time_ns <= end_ns,
  );
  return {
    ...summary,
    storages: own.length,
    peak_nbytes: peakIn(scene, chosen).nbytes,
    saved_nbytes: sum(({ recomputed }) => !recomputed),
    recomputed_nbytes: sum(({ recomputed }) => recomputed),
    released_nbytes: sum((each) => !isHeldAt(each, end_ns)),
    held_nbytes: sum((each) => isHeldAt(each, end_ns)),
    offloaded_nbytes: 0, // not known of a step
    without_checkpoints_nbytes: summary.without_checkpoints_nbytes && highest(without),
  };
}

/** @param {{nbytes: number}[]} points */
const highest = (points) => points.reduce((most, { nbytes }) => Math.max(most, nbytes), 0);

/**
 * Return the sums of a recording as texts, those that are zero left out.
 *
 * @param {import("../types.js").Scene["summary"]} summary
 * @returns {string[]}
 */
export function savedSums(summary) {
  /** @type {[number, string][]} */
  const sums = [
    [summary.peak_nbytes + summary.older_nbytes, "held at peak"],
    [summary.saved_nbytes, "saved"],
    [summary.recomputed_nbytes, "recomputed"],
    [summary.released_nbytes, "released"],
    [summary.held_nbytes + summary.older_nbytes, olderText(summary)],
    [summary.offloaded_nbytes, "offloaded"],
  ];
  return sums
    .filter(([nbytes]) => nbytes)
    .map(([nbytes, word]) => `${formatBytes(nbytes)} ${word}`);
}

/**
 * @param {import("../types.js").Scene["summary"]} summary
 * @returns {string} "still held (13 MB of it by 3 steps no longer shown)"
 */
export function olderText({ older_nbytes, older_steps }) {
  if (!older_nbytes) return "still held";
  const steps = plural(older_steps, "step");
  return `still held (${formatBytes(older_nbytes)} of it by ${steps} no longer shown)`;
}

/**
 * Return the saved bytes of a group as text.
 *
 * @param {{nbytes: number, recomputed_nbytes: number, shared_nbytes?: number}} group
 * @returns {string} "3.1 MB saved · 26 MB recomputed · 8 kB shared"; empty without any
 */
export function savedText({ nbytes, recomputed_nbytes, shared_nbytes }) {
  const parts = [];
  if (nbytes) parts.push(`${formatBytes(nbytes)} saved`);
  if (recomputed_nbytes) parts.push(`${formatBytes(recomputed_nbytes)} recomputed`);
  if (shared_nbytes) parts.push(`${formatBytes(shared_nbytes)} shared`);
  return parts.join(" · ");
}

/**
 * Return the number of nodes of a group; for a compiled region, its numbers of ops.
 *
 * @param {import("../types.js").SceneGroup} group
 */
export function contentsText(group) {
  return group.contents || plural(group.node_count, "node");
}

/**
 * @param {{nbytes: number, recomputed_nbytes: number, shared_nbytes?: number}} group
 * @returns {string} the larger part of the same text
 */
export function largerSavedText({ nbytes, recomputed_nbytes, shared_nbytes }) {
  const isSaved = nbytes >= recomputed_nbytes;
  return savedText({
    nbytes: isSaved ? nbytes : 0,
    recomputed_nbytes: isSaved ? 0 : recomputed_nbytes,
    shared_nbytes: nbytes || recomputed_nbytes ? 0 : shared_nbytes,
  });
}

/**
 * @param {Scene} scene
 * @param {number} [step] on display; only the last one can have stopped
 * @returns {boolean} whether what no backward read is what it did not reach
 */
export const isStopped = ({ summary, steps }, step = -1) =>
  summary.error_type !== "" && (step < 0 || step === steps.length - 1);
