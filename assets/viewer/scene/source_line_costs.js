// @ts-check
/**
 * Costs of source lines, by themselves and with all that they call.
 *
 * Each node, storage and op has one frame in the tree of calls; a cost is a list of numbers, one
 * for each of `COLUMNS`. The outermost lines and what has no line add up to the total.
 */

import { inStep, isTimed, stepOfNode, timedStep } from "./step_of_time_or_node.js";
import { isHeldAtPeak, isSavedIn } from "./storage_holds.js";

/** @typedef {import("../types.js").Scene} Scene */
/** @typedef {number[]} Cost by `COLUMNS` */

export const COLUMNS = [
  "saved",
  "held at peak",
  "recomputed",
  "forward",
  "backward",
  "recompute",
  "optimizer",
  "outside",
  "nodes",
];

/** @param {Cost} cost */
export const timeOf = (cost) => cost.slice(3, 8).reduce((sum, ns) => sum + ns);

/** The definitions of those that are not in all views. */
export const COST_DEFINITIONS = /** @type {[word: string, meaning: string][]} */ ([
  ["forward, of a line", "of the ops that it runs"],
  ["backward, of a line", "of the nodes that compute its gradients, without recomputation"],
  ["recompute, of a line", "of a checkpoint that it calls, in backward"],
]);

/**
 * @typedef {object} Part lines that a line calls, or that call it
 * @property {string} filename "" for what has no line
 * @property {number} lineno
 * @property {Cost} cost
 * @property {[frame: number, cost: Cost][]} frames disjoint ones, with their parts of the cost
 */

/**
 * @typedef {object} CallCosts
 * @property {Cost} total
 * @property {Cost} unknown of what has no line
 * @property {Cost[]} own by frame, without calls
 * @property {Cost[]} whole by frame, with calls
 * @property {Map<string, Part>} lines by `placeKey`, with calls
 */

/**
 * @param {{filename: string, lineno: number}} place
 * @returns {string}
 */
export const placeKey = ({ filename, lineno }) => `${lineno} ${filename}`;

/** @returns {Cost} */
const nothing = () => COLUMNS.map(() => 0);

/**
 * @param {Cost} sum
 * @param {Cost} cost
 */
export function addCost(sum, cost) {
  cost.forEach((value, at) => (sum[at] += value));
}

/**
 * @param {Scene} scene
 * @param {number} [step] index of the only step that counts, -1 for all; times of a warm-up do not
 * @returns {CallCosts}
 */
export function callCosts(scene, step = -1) {
  const frames = [...scene.call_frames];
  const own = frames.map(nothing);
  const unknown = nothing();
  const add = (
    /** @type {number} */ frame,
    /** @type {number} */ at,
    /** @type {number} */ value,
  ) => ((own[frame] ?? unknown)[at] += value);
  const atPeak = isHeldAtPeak(scene, step);
  for (const storage of scene.counted_storages) {
    const { call, nbytes, recomputed } = storage;
    if (isSavedIn(scene, storage, step)) add(call, recomputed ? 2 : 0, nbytes);
    if (atPeak(storage)) add(call, 1, nbytes);
  }
  const timed = timedStep(scene, step);
  for (const row of scene.call_times) {
    if (!isTimed(timed, row.step)) continue;
    add(row.origin, COLUMNS.indexOf(row.phase), row.ns);
  }
  for (const node of scene.nodes) {
    if (inStep(step, () => stepOfNode(scene, node))) add(node.call, 8, 1);
  }
  const whole = own.map((cost) => [...cost]);
  for (let at = frames.length - 1; at >= 0; at--) {
    const above = whole[frames[at].parent];
    if (above) addCost(above, whole[at]);
  }
  const total = [...unknown];
  frames.forEach(({ parent }, at) => parent < 0 && addCost(total, whole[at]));
  /** @type {CallCosts["lines"]} */
  const lines = new Map();
  frames.forEach((frame, at) => {
    if (!isRecursive(scene, at)) addPart(lines, frame, at, whole[at]);
  });
  return { total, unknown, own, whole, lines };
}

/**
 * @param {Scene} scene
 * @param {number} frame
 * @returns {boolean} whether its line is one of those that called it
 */
function isRecursive({ call_frames }, frame) {
  const key = placeKey(call_frames[frame]);
  let at = call_frames[frame].parent;
  while (at >= 0 && placeKey(call_frames[at]) !== key) at = call_frames[at].parent;
  return at >= 0;
}

/**
 * @param {Map<string, Part>} parts
 * @param {{filename: string, lineno: number}} place
 * @param {number} frame
 * @param {Cost} cost
 */
function addPart(parts, place, frame, cost) {
  const key = placeKey(place);
  const { filename, lineno } = place;
  const part = parts.get(key) ?? { filename, lineno, cost: nothing(), frames: [] };
  parts.set(key, part);
  addCost(part.cost, cost);
  part.frames.push([frame, cost]);
}

/**
 * Return the cost of lines by themselves.
 *
 * @param {CallCosts} costs
 * @param {Part} part
 * @returns {Cost}
 */
export function ownCost({ own, unknown }, { frames }) {
  const sum = nothing();
  for (const [frame] of frames) addCost(sum, own[frame] ?? unknown);
  return sum;
}

/**
 * Return the lines that lines call; with what they cost themselves, they add up.
 *
 * @param {Scene} scene
 * @param {CallCosts} costs
 * @param {Part} part
 * @returns {Part[]} the most expensive first
 */
export function callees(scene, { whole }, part) {
  const above = new Set(part.frames.map(([frame]) => frame));
  /** @type {Map<string, Part>} */
  const parts = new Map();
  scene.call_frames.forEach((frame, at) => {
    if (above.has(frame.parent)) addPart(parts, frame, at, whole[at]);
  });
  return sorted(parts);
}

/**
 * Return all lines with what they cost themselves.
 *
 * @param {Scene} scene
 * @param {CallCosts} costs
 * @returns {Part[]} the most expensive first
 */
export function ownParts(scene, { own, unknown }) {
  /** @type {Map<string, Part>} */
  const parts = new Map();
  scene.call_frames.forEach((frame, at) => addPart(parts, frame, at, own[at]));
  if (unknown.some(Boolean)) addPart(parts, { filename: "", lineno: 0 }, -1, unknown);
  return sorted(parts);
}

/**
 * @param {Map<string, Part>} parts
 * @returns {Part[]} those that cost something
 */
function sorted(parts) {
  const bytes = (/** @type {Part} */ { cost }) => cost[0] + cost[2];
  return [...parts.values()]
    .filter(({ cost }) => cost.some(Boolean))
    .sort((a, b) => timeOf(b.cost) - timeOf(a.cost) || bytes(b) - bytes(a));
}

/**
 * Return the calls that led to a frame.
 *
 * @param {Scene} scene
 * @param {number} frame
 * @returns {import("../types.js").SceneCallFrame[]} innermost first
 */
export function stackOf({ call_frames }, frame) {
  const stack = [];
  for (let at = frame; at >= 0; at = call_frames[at].parent) stack.push(call_frames[at]);
  return stack;
}
