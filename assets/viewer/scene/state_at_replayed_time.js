// @ts-check
/** The state of nodes, groups and saved tensors at a replayed time. */

import { distinct, rowWith } from "../payload/lazy_rows.js";

/** @typedef {"future" | "created" | "running" | "ran"} Phase */
/** @typedef {import("../types.js").SceneNode} SceneNode */

/**
 * Times in nanoseconds, infinite if they never come.
 *
 * @typedef {object} Lifetime
 * @property {number} created when the first node is created
 * @property {number} start when the first node runs
 * @property {number} end when the last node has run
 */

/**
 * @param {SceneNode} node
 * @param {number} time
 * @returns {Phase}
 */
export function phaseOf(node, time) {
  if (node.born_ns > time) return "future";
  const runs = node.runs_ns;
  for (let at = runs.length - 2; at >= 0; at -= 2) {
    if (runs[at] > time) continue;
    return runs[at + 1] < 0 || runs[at + 1] > time ? "running" : "ran";
  }
  return "created";
}

/**
 * Return a node in the state that it has at a time.
 *
 * @param {SceneNode} node
 * @param {number} time
 * @returns {SceneNode}
 */
export function nodeAt(node, time) {
  const phase = phaseOf(node, time);
  const reached = phase === "running" || phase === "ran";
  if (reached && (phase === "running" || node.state !== "failed")) {
    return node.state === "failed" ? node : rowWith(node, { state: "ran", error: 0 });
  }
  const state = reached ? node.state : "not_run";
  return rowWith(node, { state, error: reached ? node.error : 0 });
}

/**
 * Return whether a saved tensor is held at a time: after its save and before its release.
 *
 * @param {import("../types.js").SavedTensorBadge} saved
 * @param {number} time
 * @returns {boolean}
 */
export function isHeldAt({ saved_ns, released_ns }, time) {
  return saved_ns <= time && (released_ns < 0 || released_ns > time);
}

/**
 * @param {SceneNode[]} nodes
 * @returns {Lifetime}
 */
export function lifetimeOf(nodes) {
  const lifetime = { created: Infinity, start: Infinity, end: -Infinity };
  for (const { born_ns, runs_ns } of nodes) {
    lifetime.created = Math.min(lifetime.created, Math.max(0, born_ns));
    for (let at = 0; at < runs_ns.length; at += 2) {
      lifetime.start = Math.min(lifetime.start, runs_ns[at]);
      lifetime.end = Math.max(lifetime.end, runs_ns[at + 1] < 0 ? Infinity : runs_ns[at + 1]);
    }
  }
  return lifetime;
}

/**
 * @param {Lifetime} lifetime
 * @param {number} time
 * @returns {Phase}
 */
export function phaseOfLifetime({ created, start, end }, time) {
  if (created > time) return "future";
  if (start > time) return "created";
  return end > time ? "running" : "ran";
}

/**
 * Return the spans that contain a time, the innermost last.
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

/**
 * @param {import("../types.js").Scene} scene
 * @returns {import("../types.js").SceneNode | undefined} the first node that failed
 */
export function failedNode({ nodes }) {
  const mayExist =
    distinct(nodes, "state").has("failed") || [...distinct(nodes, "error")].some(Boolean);
  return mayExist ? nodes.find((node) => node.state === "failed" || node.error) : undefined;
}

/**
 * @param {import("../types.js").Scene} scene
 * @returns {number} index of the node in which backward stopped, -1 without one
 */
export function stoppedNode(scene) {
  if (!distinct(scene.nodes, "state").has("failed")) return -1;
  return scene.nodes.findIndex((node) => node.state === "failed");
}
