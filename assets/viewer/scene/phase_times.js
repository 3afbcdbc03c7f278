// @ts-check
/**
 * The time of each phase: one definition for all views.
 *
 * A phase lasts from its first op to its last one, with the Python code between them and without
 * idle time, in which no op and no node ran. A recomputation is a part of the backward that needs
 * it. Phases, what is outside of them, and idle time add up to the duration.
 */

import { capitalized, formatDuration, placeOf } from "./format_numbers_and_names.js";
import { compileTimes, idleTimes } from "./idle_and_compile_times.js";
import { isTimed, stepAt } from "./step_of_time_or_node.js";
import { isStopped } from "./sum_and_describe_saved_bytes.js";

/** @typedef {import("./scene_index.js").SceneIndex} SceneIndex */
/** @typedef {"forward" | "backward" | "optimizer" | "outside"} PhaseName */

/**
 * @typedef {object} PhaseTime
 * @property {PhaseName} name
 * @property {number} total nanoseconds, without idle time
 * @property {number} recomputed of it, by checkpoints
 * @property {number} compiled of it, by torch.compile
 * @property {number | null} ops of it, of ops or of nodes; null if it is known of steps only
 */

/** @typedef {{active: number, idle: number, phases: PhaseTime[]}} PhaseTimes */

/** Definitions of the numbers, in the order of the table. */
export const PHASE_MEANINGS = /** @type {[word: string, meaning: string][]} */ ([
  ["forward", "from the first module call or recorded op to the last op, with Python between ops"],
  ["backward", "calls of backward, from beginning to end; recomputation is a part of it"],
  ["optimizer", "the ops of optimizer steps, with Python between ops"],
  ["outside", "before, between and after these: data, initialization, changes by hand"],
  ["between ops", "Python, PyTorch's engine and other code while no op and no node runs"],
]);

/** In the order in which a time with several belongs to one. */
const ORDER = /** @type {const} */ (["backward", "optimizer", "forward"]);

/**
 * @param {SceneIndex} sceneIndex
 * @param {[start: number, end: number]} range
 * @param {number} [step] index of the step that is the range, -1 or AFTER_WARM_UP for the recording
 * @returns {PhaseTimes}
 */
export function phaseTimes({ scene }, [start, end], step) {
  /** @type {[time: number, kind: string, change: 1 | -1][]} */
  const changes = [];
  const add = (
    /** @type {string} */ kind,
    /** @type {number} */ from,
    /** @type {number} */ to,
  ) => {
    const [first, last] = [Math.max(from, start), Math.min(to, end)];
    if (first < last) changes.push([first, kind, 1], [last, kind, -1]);
  };
  for (const { kind, depth, start_ns, end_ns } of scene.spans) {
    if (!depth) add(kind, start_ns, end_ns);
  }
  for (const [from, to] of compileTimes(scene)) add("compiling", from, to);
  for (const [from, to] of idleTimes(scene)) add("idle", from, to);
  changes.sort((a, b) => a[0] - b[0]);
  const phases = Object.fromEntries(
    ["forward", "backward", "optimizer", "outside"].map((name) => [
      name,
      /** @type {PhaseTime} */ ({ name, total: 0, recomputed: 0, compiled: 0, ops: null }),
    ]),
  );
  /** @type {Record<string, number>} the number of intervals around a time, by kind */
  const around = {};
  let idle = 0;
  let last = start;
  for (const [time, kind, change] of [...changes, [end, "", 1]]) {
    const length = Number(time) - last;
    last = Number(time);
    if (around.idle) idle += length;
    else {
      const phase = phases[ORDER.find((name) => around[name]) ?? "outside"];
      phase.total += length;
      if (around.compiling) phase.compiled += length;
      else if (around.recompute) phase.recomputed += length;
    }
    around[kind] = (around[kind] ?? 0) + Number(change);
  }
  if (step !== undefined) {
    for (const phase of Object.values(phases)) phase.ops = 0;
    for (const row of scene.call_times) {
      if (row.phase === "recompute" || !isTimed(step, row.step)) continue;
      const phase = phases[row.phase];
      phase.ops = Math.min(phase.total - phase.compiled, (phase.ops ?? 0) + row.ns);
    }
  }
  return { active: end - start - idle, idle, phases: Object.values(phases) };
}

/**
 * @param {PhaseTime} phase
 * @returns {number} nanoseconds between its ops
 */
export const betweenOps = ({ total, ops, recomputed, compiled }) =>
  ops === null ? 0 : Math.max(0, total - ops - recomputed - compiled);

/**
 * @param {{phases: PhaseTime[]}} times
 * @returns {number} nanoseconds in which torch.compile compiled
 */
export const compiledIn = ({ phases }) => phases.reduce((sum, { compiled }) => sum + compiled, 0);

/**
 * @param {number} ns
 * @param {number} whole
 * @returns {string} "12 %", "<1 %"
 */
export function shareText(ns, whole) {
  const percent = Math.round((100 * ns) / (whole || 1));
  return ns > 0 && !percent ? "<1 %" : `${percent} %`;
}

/**
 * Return the largest row and, if that is no line, the longest line.
 *
 * @param {PhaseTimes} times
 * @param {{label: string, filename: string, lineno: number, time: number}[]} rows by line, the
 *   longest first
 * @returns {{lead: string, more: string, line?: typeof rows[number]}} the lead is "" if that is
 *   compilation
 */
export function leadOf(times, rows) {
  const { active } = times;
  const counted = rows.reduce((sum, { time }) => sum + time, 0);
  const between = { label: "between ops", filename: "", lineno: 0, time: active - counted };
  const [first] = [...rows.slice(0, 1), between].sort((a, b) => b.time - a.time);
  if (first.time <= compiledIn(times)) return { lead: "", more: "" };
  const line = rows.find(({ filename, time }) => filename && 20 * time >= active);
  const name = first.filename ? placeOf(first) : `“${first.label}”`;
  const lead = `${name} takes ${shareText(first.time, active)}`;
  if (!line || first === line) return { lead, more: "", line };
  return { lead, more: `; of lines, ${placeOf(line)} most: ${shareText(line.time, active)}`, line };
}

/**
 * Return sentences that say where the time goes.
 *
 * @param {PhaseTimes} times
 * @param {string} [lead] what takes most: "Line 24 takes 25 %". Phases are another division of the
 *   time: they are not in its sentence.
 * @param {string} [more] of it
 * @returns {string}
 */
export function timeSentence(times, lead = "", more = "") {
  const { active, phases } = times;
  const share = (/** @type {number} */ ns) => shareText(ns, active);
  /** @type {[name: string, ns: number, again: number][]} */
  const parts = phases.map(({ name, total, compiled, recomputed }) => [
    name,
    total - compiled,
    recomputed,
  ]);
  const others = [
    ...parts,
    /** @type {typeof parts[number]} */ (["compiling", compiledIn(times), 0]),
  ]
    .filter(([name, ns]) => ns > 0 && name !== "outside")
    .sort((a, b) => b[1] - a[1]);
  if (!others.length) return `Nothing of a forward or backward ran in ${formatDuration(active)}.`;
  const again = (/** @type {number} */ ns) =>
    ns ? `, ${formatDuration(ns)} of it to recompute checkpoints` : "";
  const of = ` of ${formatDuration(active)}`;
  if (lead) return `${lead}${of}${more}.`;
  const [[name, ns, recomputed]] = others.splice(0, 1);
  const subject = name === "optimizer" ? "The optimizer" : capitalized(name);
  const text = `${subject} takes ${share(ns)}${of}${again(recomputed)}`;
  const rest = others.map(([name, ns, recomputed]) => `${name} ${share(ns)}${again(recomputed)}`);
  const [, outside] = parts.find(([name]) => name === "outside") ?? ["", 0];
  if (outside > active / 200) rest.push(`outside ${share(outside)}`);
  return rest.length ? `${text}; ${rest.join(", ")}.` : `${text}.`;
}

/**
 * @param {SceneIndex} sceneIndex
 * @param {import("../types.js").SceneFold} fold
 * @returns {number} nanoseconds of recomputations in the backward of a fold
 */
export function recomputedIn(sceneIndex, { turn_ns, end_ns }) {
  if (turn_ns < 0 || !sceneIndex.scene.regions.length) return 0;
  const { phases } = phaseTimes(sceneIndex, [turn_ns, end_ns]);
  return phases.reduce((sum, { recomputed }) => sum + recomputed, 0);
}

/**
 * @param {import("../types.js").Scene} scene
 * @param {{filename: string, lineno: number, time: number}} line with its time in all steps
 * @returns {string} the step with most of it: "; 36.1 ms in step 1 alone", "" without one
 */
export function mostlyInStep({ steps, call_frames, call_times }, { filename, lineno, time }) {
  const bySteps = steps.map(() => 0);
  for (const { origin, step, ns } of call_times) {
    const frame = call_frames[origin];
    if (frame?.filename === filename && frame.lineno === lineno) bySteps[step] += ns;
  }
  const most = Math.max(0, ...bySteps);
  if (steps.length < 3 || 2 * most < time) return "";
  const { number } = steps[bySteps.indexOf(most)];
  return `; ${formatDuration(most)} in step ${number} alone`;
}

/**
 * @param {SceneIndex} sceneIndex
 * @param {[start: number, end: number]} range
 * @param {number} step index of the step on display, -1 for all
 * @returns {string} when the backward stopped that failed in a range: a sentence, or ""
 */
export function stoppedBackward(sceneIndex, [start, end], step) {
  const { scene } = sceneIndex;
  const failed = scene.nodes.find(({ state }) => state === "failed");
  if (!failed || !isStopped(scene, step)) return "";
  const began = failed.runs_ns.at(-2) ?? 0;
  const span = scene.spans.find(
    ({ kind, depth, start_ns, end_ns }) =>
      kind === "backward" && !depth && start_ns <= began && began <= end_ns,
  );
  if (!span || span.start_ns < start || span.start_ns >= end) return "";
  const { phases } = phaseTimes(sceneIndex, [span.start_ns, span.end_ns]);
  const ran = phases.reduce((sum, { total, compiled }) => sum + total - compiled, 0);
  const own = scene.steps.length > 1 && scene.steps[stepAt(scene, span.start_ns)];
  const name = own ? `Backward of step ${own.number}` : "Backward";
  return `${name} stopped after ${formatDuration(ran)}. `;
}
