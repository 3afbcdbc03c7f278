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
 * @param {import("../types.js").Scene} scene
 * @param {number} step index, -1 for all
 * @returns {number} of which step times are: AFTER_WARM_UP for all, if the first is a warm-up
 */
export const timedStep = ({ summary }, step) =>
  step < 0 && summary.warm_up ? AFTER_WARM_UP : step;

/**
 * Return the range of times: of a step, or of all steps that are no warm-up.
 *
 * @param {import("./scene_index.js").SceneIndex} sceneIndex
 * @param {number} step index, -1 for all
 * @returns {{range: [start: number, end: number], step: number}}
 */
export function timedSteps({ scene, end }, step) {
  const timed = timedStep(scene, step);
  if (timed === -1) return { range: [0, end], step };
  const { start_ns, end_ns } = scene.steps[step < 0 ? 1 : step];
  return { range: [start_ns, step < 0 ? end : end_ns], step: timed };
}

/**
 * @param {number} step index of the step that is timed, -1 or AFTER_WARM_UP for all
 * @param {number} own step of a time
 */
export const isTimed = (step, own) =>
  step === AFTER_WARM_UP ? own !== 0 : step < 0 || own === step;
