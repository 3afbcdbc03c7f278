// @ts-check
/** How the graph stood at a time. */

import { rowWith } from "../payload/decode.js";

/** @typedef {"later" | "made" | "running" | "ran"} Phase */
/** @typedef {import("../types.js").SceneNode} SceneNode */

/**
 * @param {SceneNode} node
 * @param {number} time
 * @returns {Phase}
 */
export function phaseOf(node, time) {
  if (node.born_ns > time) return "later";
  const runs = node.runs_ns;
  for (let at = runs.length - 2; at >= 0; at -= 2) {
    if (runs[at] > time) continue;
    return runs[at + 1] < 0 || runs[at + 1] > time ? "running" : "ran";
  }
  return "made";
}

/**
 * A node as it is drawn at a time: what it does later does not show yet.
 *
 * @param {SceneNode} node
 * @param {number} time
 * @returns {SceneNode}
 */
export function nodeAt(node, time) {
  const phase = phaseOf(node, time);
  const reached = phase === "running" || phase === "ran";
  if (reached && (phase === "running" || node.state !== "failed")) {
    return node.state === "failed" ? node : rowWith(node, { state: "ran", error: false });
  }
  const state = reached ? node.state : "not_run";
  return rowWith(node, { state, error: reached && !!node.error });
}

/**
 * A chip as it is drawn at a time; none before it was saved and after it was let go.
 *
 * @param {import("../types.js").Chip} chip
 * @param {number} time
 * @returns {boolean}
 */
export function isHeldAt(chip, time) {
  if (chip.saved_ns > time) return false;
  return chip.released_ns < 0 || chip.released_ns > time;
}

/**
 * When a group's nodes are made and run, as one.
 *
 * @param {SceneNode[]} nodes
 * @returns {{born: number, start: number, end: number}} infinite where that never happens
 */
export function lifeOf(nodes) {
  const life = { born: Infinity, start: Infinity, end: -Infinity };
  for (const { born_ns, runs_ns } of nodes) {
    life.born = Math.min(life.born, Math.max(0, born_ns));
    for (let at = 0; at < runs_ns.length; at += 2) {
      life.start = Math.min(life.start, runs_ns[at]);
      life.end = Math.max(life.end, runs_ns[at + 1] < 0 ? Infinity : runs_ns[at + 1]);
    }
  }
  return life;
}

/**
 * @param {{born: number, start: number, end: number}} life
 * @param {number} time
 * @returns {Phase}
 */
export function phaseOfLife({ born, start, end }, time) {
  if (born > time) return "later";
  if (start > time) return "made";
  return end > time ? "running" : "ran";
}

/**
 * What ran at a time, the innermost last.
 *
 * @param {import("../types.js").Scene} scene
 * @param {number} time
 * @returns {import("../types.js").SceneSpan[]}
 */
export function runningAt(scene, time) {
  return scene.spans
    .filter(({ start_ns, end_ns }) => start_ns <= time && time < end_ns)
    .sort((a, b) => a.start_ns - b.start_ns || b.end_ns - a.end_ns);
}
