// @ts-check
/** The graph of a narrow viewer: fewer badges, and boxes without the forward op. */

import { rowWith } from "../../payload/rows.js";
import { BADGE_DISTANCE, BADGE_GAP } from "./paint/badges.js";

/** @typedef {import("../../scene/scene_index.js").SceneIndex} SceneIndex */

/** Width of the viewer in pixels up to which its views are one column, as in the style sheets. */
const ONE_COLUMN = 760;
/** The same for a box with one part. */
const ONE_PART = 460;
/** Width of a closed group among boxes with one part. */
const CLOSED_WIDTH = 230;
/** Width of "+2", the number of badges that are left out. */
const COUNT_WIDTH = 18;

/** @typedef {0 | 1 | 2} Narrowness number of breakpoints that the width is below */

/**
 * @param {number} width of the viewer in pixels
 * @returns {Narrowness}
 */
export function narrownessOf(width) {
  return /** @type {Narrowness} */ (+(width <= ONE_COLUMN) + +(width <= ONE_PART));
}

/**
 * Return an index in which nodes have one saved-tensor badge and no parameter badges. Where boxes
 * have one part, only in-place writes have the name of their forward op.
 *
 * @param {SceneIndex} sceneIndex
 * @param {Narrowness} narrowness
 * @returns {SceneIndex}
 */
export function narrowIndex(sceneIndex, narrowness) {
  if (!narrowness) return sceneIndex;
  const savedTensors = sceneIndex.savedTensors.map((badges) => {
    const shown =
      badges.find(({ state }) => state === "broken") ??
      badges.reduce((a, b) => (b.width && b.nbytes > a.nbytes ? b : a), badges[0]);
    if (badges.length < 2) return badges;
    const others = badges.filter((badge) => badge !== shown);
    return [shown, ...others.map((badge) => (badge.width ? rowWith(badge, { width: 0 }) : badge))];
  });
  const nodes = sceneIndex.scene.nodes.map((node, at) => {
    const [badge, ...others] = savedTensors[at];
    const count = others.length ? BADGE_DISTANCE + COUNT_WIDTH : 0;
    const right = badge ? BADGE_GAP + badge.width + count : 0;
    const twoParts = narrowness < 2 || node.writes || !node.name_width;
    return rowWith(node, {
      left_width: 0,
      right_width: node.compact ? node.right_width : right,
      op_width: twoParts ? node.op_width : 0,
    });
  });
  const parameters = sceneIndex.parameters.map(() => []);
  const groups = sceneIndex.scene.groups.map((group) => {
    const width = Math.min(group.width, CLOSED_WIDTH);
    return narrowness < 2 ? group : rowWith(group, { width, header_width: 0 });
  });
  const scene = { ...sceneIndex.scene, nodes, groups };
  return Object.assign(Object.create(sceneIndex), { scene, savedTensors, parameters });
}
