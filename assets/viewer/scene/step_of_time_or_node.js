// @ts-check
/** The index of the training step of a time or node, and whether something of a step is shown. */

/** @typedef {Pick<import("../types.js").Scene, "steps">} Scene */

/**
 * @param {Scene} scene
 * @param {number} time
 * @returns {number} index of the step that was running; the last one after the end of all
 */
export function stepAt({ steps }, time) {
  const at = steps.findIndex(({ end_ns }) => time <= end_ns);
  return at < 0 ? steps.length - 1 : at;
}

/**
 * @param {Scene} scene
 * @param {import("../types.js").SceneNode} node
 * @returns {number} index of the step that created a node
 */
export function stepOfNode(scene, node) {
  return stepAt(scene, node.born_ns < 0 ? (node.runs_ns[0] ?? 0) : node.born_ns);
}

/**
 * Return whether something of a step is to be shown.
 *
 * @param {number} step index of the step that is shown, -1 for all
 * @param {() => number} own index of its step
 * @returns {boolean}
 */
export const inStep = (step, own) => step < 0 || own() === step;
