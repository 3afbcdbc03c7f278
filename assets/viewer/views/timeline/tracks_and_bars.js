// @ts-check
/** The tracks of the timeline, and the bars in the rows of each. */

import {
  blockPrefix,
  formatPlace,
  inModel,
  nameRange,
  plural,
} from "../../scene/format_numbers_and_names.js";
import { inStep, stepAt } from "../../scene/step_of_time_or_node.js";

/** @typedef {import("../../types.js").SceneSpan} SceneSpan */

/**
 * @typedef {object} Bar
 * @property {string} label
 * @property {number} start nanoseconds
 * @property {number} end
 * @property {number} row in its track
 * @property {string} kind of its span, or "accumulate" or "step"
 * @property {number} ref index of a node, a region or a step, -1
 * @property {string} place the line that started it
 * @property {boolean} [faint] a part of the bar above it
 * @property {string} [number] the end of its name, if that alone names it in its row: "0" of
 *   "blocks.0", but not of "up.0" and "down.0"
 */

/**
 * @typedef {object} Track
 * @property {string} name
 * @property {string} note
 * @property {string} numbered the modules of the second row that have numbers, "blocks.0–7"
 * @property {number} rows number of rows
 * @property {Bar[]} bars by start
 */

const MODULE_ROWS = 2;

/** @type {[name: string, meaning: string][]} what the rows show, for the help and their tooltips */
export const ROW_MEANINGS = [
  ["steps", "a click shows one in all views"],
  ["forward", "the forward, and below it the modules"],
  ["compile", "torch.compile compiles"],
  ["backward", "its calls, and below them the blocks and nodes"],
  ["nested", "backward inside backward"],
  ["recompute", "checkpoint regions that run again"],
  ["optimizer", "optimizer.step()"],
  ["hooks", "runs of your hooks"],
  ["modes", "no_grad, inference_mode, autocast and others that you set"],
  ["gradients", "added to .grad"],
  ["marks", "random draws, writes into buffers, requires_grad_()"],
  ["cuda:0 stream 3", "when a stream ran modules and nodes, with record(device_time=True)"],
];

/**
 * @param {import("../../scene/scene_index.js").SceneIndex} sceneIndex
 * @param {number} [step] index of the step that the notes count, -1 for all
 * @returns {Track[]} without empty tracks
 */
export function timelineTracks(sceneIndex, step = -1) {
  const { scene } = sceneIndex;
  const { spans, regions } = scene;
  const counted = (/** @type {SceneSpan[]} */ some) =>
    some.filter(({ start_ns }) => inStep(step, () => stepAt(scene, start_ns)));
  const ofKind = (/** @type {string} */ kind) => spans.filter((span) => span.kind === kind);
  const recomputations = ofKind("recompute");
  const inRecomputation = isInside(recomputations);
  const backwards = ofKind("backward");
  const nodes = ofKind("node");
  const accumulate = nodes.filter((span) => span.label.endsWith("AccumulateGrad"));
  const outer = backwards.filter((span) => !span.depth);
  const inner = backwards.filter((span) => span.depth);
  const modules = ofKind("module").filter((span) => !inRecomputation(span));
  const inNested = isInside(inner);
  const nested = nodes.filter((span) => span.ref >= 0 && inNested(span));
  const below = inner.reduce((most, span) => Math.max(most, span.depth), 0) - 1;
  const recomputed = new Set(counted(recomputations).map((span) => span.ref)).size;
  const checkpointed = regions.filter((region) => inStep(step, () => region.step)).length;
  const calls = counted(outer).length;
  const { steps } = scene;
  // An optimizer and a recomputation set the modes that they need.
  const inOptimizer = isInside(ofKind("optimizer"));
  const optimizers = ofKind("optimizer");
  const modes = ofKind("mode").filter(
    (mode) =>
      !inRecomputation(mode) &&
      !inOptimizer(mode) &&
      !optimizers.some((span) => mode.start_ns <= span.start_ns && span.end_ns <= mode.end_ns),
  );
  const random = ofKind("random");
  const draws = counted(random).length;
  const tracks = [
    makeTrack(
      "steps",
      "",
      steps.length > 1
        ? [...steps].map((step, at) => stepBar(step, at, !at && Boolean(scene.summary.warm_up)))
        : [],
    ),
    makeTrack("forward", "", [
      ...ofKind("forward").map(makeBar),
      ...moduleBars(modules).map((bar) => ({ ...bar, label: inModel(scene, bar.label) })),
    ]),
    makeTrack("compile", "", ofKind("compile").map(nestedBar)),
    makeTrack("backward", calls > 1 ? `${calls} calls` : "", [
      ...outer.map(makeBar),
      ...blockBars(
        sceneIndex,
        nodes.filter((span) => span.ref >= 0 && !inNested(span)),
        outer,
      ),
    ]),
    makeTrack("nested", "backward inside backward", [
      ...inner.map((span) => ({ ...makeBar(span), row: span.depth - 1 })),
      ...blockBars(sceneIndex, nested, inner).map((bar) => ({ ...bar, row: bar.row + below })),
    ]),
    makeTrack(
      "recompute",
      recomputed ? `${recomputed} of ${checkpointed}` : "",
      recomputations.map(nestedBar),
    ),
    makeTrack("optimizer", "", ofKind("optimizer").map(makeBar)),
    makeTrack(
      "hooks",
      plural(counted(ofKind("hook")).length, "run"),
      ofKind("hook").map(nestedBar),
    ),
    makeTrack(modeName(modes), "", modes.map(nestedBar)),
    makeTrack(
      "gradients",
      `${counted(accumulate).length} added`,
      accumulate.map((span) => ({ ...makeBar(span), kind: "accumulate" })),
    ),
    makeTrack(
      "marks",
      draws ? plural(draws, "random draw") : "",
      [...random, ...ofKind("buffer"), ...ofKind("toggle")].map(makeBar),
    ),
    ...laneTracks(ofKind("device")),
  ];
  return tracks.filter(({ bars }) => bars.length);
}

/**
 * @param {SceneSpan[]} spans of kind "device"
 * @returns {Track[]} one for each stream
 */
function laneTracks(spans) {
  const lanes = [...new Set(spans.map(({ lane }) => lane))];
  return lanes.map((lane) => {
    const bars = spans.filter((span) => span.lane === lane).map(nestedBar);
    return makeTrack(lane, "on the device", bars);
  });
}

/**
 * @param {SceneSpan[]} spans
 * @returns {string} the mode, if all bars are of one; small bars have no room for it
 */
function modeName(spans) {
  const labels = new Set(spans.map(({ label }) => label));
  return labels.size === 1 ? [...labels][0] : "modes";
}

/**
 * @param {string} name
 * @param {string} note
 * @param {Bar[]} bars
 * @returns {Track}
 */
function makeTrack(name, note, bars) {
  bars.sort((a, b) => a.start - b.start || a.row - b.row);
  /** @type {Map<number, Map<string, Set<number>>>} numbers by what is numbered, by row */
  const rows = new Map();
  const parts = (/** @type {Bar} */ { label }) => /^(.*)\.(\d+)$/.exec(label) ?? [];
  for (const bar of bars) {
    const [, parent, number] = parts(bar);
    if (!number) continue;
    const parents = rows.get(bar.row) ?? new Map();
    rows.set(bar.row, parents);
    parents.set(parent, (parents.get(parent) ?? new Set()).add(Number(number)));
  }
  for (const bar of bars) if (rows.get(bar.row)?.size === 1) bar.number = parts(bar)[2];
  const [[parent, numbers] = ["", new Set()], ...others] = rows.get(1) ?? [];
  const ends = [Math.min(...numbers), Math.max(...numbers)].map((end) => `${parent}.${end}`);
  const numbered = others.length || !numbers.size ? "" : nameRange(ends[0], ends[1]);
  const most = bars.reduce((most, bar) => Math.max(most, bar.row), 0);
  return { name, note, numbered, rows: 1 + most, bars };
}

/**
 * @param {SceneSpan} span
 * @returns {Bar} in the first row
 */
function makeBar({ label, start_ns, end_ns, kind, ref, filename, lineno }) {
  const place = formatPlace(filename, lineno);
  return { label, start: start_ns, end: end_ns, row: 0, kind, ref, place };
}

/**
 * @param {import("../../types.js").SceneStep} step
 * @param {number} ref its index
 * @param {boolean} isWarmUp
 * @returns {Bar}
 */
function stepBar({ number, start_ns, end_ns }, ref, isWarmUp) {
  const label = `step ${number}${isWarmUp ? ", warm-up" : ""}`;
  return { label, start: start_ns, end: end_ns, row: 0, kind: "step", ref, place: "", faint: true };
}

/**
 * @param {SceneSpan} span
 * @returns {Bar} in the row of its depth
 */
function nestedBar(span) {
  return { ...makeBar(span), row: Math.min(span.depth, 2) };
}

/**
 * Return bars of modules. An outermost module that spans the forward is left out.
 *
 * @param {SceneSpan[]} spans
 * @returns {Bar[]}
 */
function moduleBars(spans) {
  const first = spans.some((span) => span.depth > 0) ? 1 : 0;
  return spans
    .filter((span) => span.depth >= first && span.depth < first + MODULE_ROWS)
    .map((span) => ({ ...makeBar(span), row: span.depth - first + 1, faint: true }));
}

/**
 * Return a bar for each run of consecutive nodes of one block in one backward call, and below it
 * the nodes' bars.
 *
 * @param {import("../../scene/scene_index.js").SceneIndex} sceneIndex
 * @param {SceneSpan[]} spans of nodes
 * @param {SceneSpan[]} calls of backward
 * @returns {Bar[]}
 */
function blockBars({ scene }, spans, calls) {
  /** @type {Bar[]} */
  const blocks = [];
  const sorted = [...spans].sort((a, b) => a.start_ns - b.start_ns);
  const starts = calls.map(({ start_ns }) => start_ns).sort((a, b) => a - b);
  let call = 0;
  for (const span of sorted) {
    const before = call;
    while (starts[call] <= span.start_ns) call++;
    const label = blockPrefix(inModel(scene, scene.nodes[span.ref].module));
    const last = blocks.at(-1);
    if (last && last.label === label && call === before) last.end = Math.max(last.end, span.end_ns);
    else blocks.push({ ...makeBar(span), label, row: 1, ref: -1 });
  }
  const nodes = sorted.map((span) => ({ ...makeBar(span), row: 2, faint: true }));
  return [...blocks.filter((bar) => bar.label), ...nodes];
}

/**
 * @param {SceneSpan[]} outer
 * @returns {(span: SceneSpan) => boolean} tests whether a span lies inside one of them
 */
function isInside(outer) {
  const sorted = [...outer].sort((a, b) => a.start_ns - b.start_ns);
  const latest = [-Infinity]; // before each start, the end of the one that ends last
  for (const { end_ns } of sorted) latest.push(Math.max(latest[latest.length - 1], end_ns));
  return ({ start_ns, end_ns }) => {
    let [low, high] = [0, sorted.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle].start_ns <= start_ns) low = middle + 1;
      else high = middle;
    }
    return end_ns <= latest[low];
  };
}
