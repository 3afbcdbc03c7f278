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

/** In the place of a step: all but the first, which is a warm-up. */
export const AFTER_WARM_UP = -2;

/**
 * Return the range of times: of a step, or of all steps that are no warm-up.
 *
 * @param {import("./scene_index.js").SceneIndex} sceneIndex
 * @param {number} step index, -1 for all
 * @returns {{range: [start: number, end: number], step: number}}
 */
export function timedSteps({ scene, end }, step) {
  const isAll = step < 0;
  if (isAll && !scene.summary.warm_up) return { range: [0, end], step: -1 };
  const { start_ns, end_ns } = scene.steps[isAll ? 1 : step];
  return { range: [start_ns, isAll ? end : end_ns], step: isAll ? AFTER_WARM_UP : step };
}

/**
 * @param {number} step index of the step that is timed, -1 or AFTER_WARM_UP for all
 * @param {number} own step of a time
 */
export const isTimed = (step, own) =>
  step === AFTER_WARM_UP ? own !== 0 : step < 0 || own === step;
