// @ts-check
/** The path of the gradient from the loss to a node. */

import { nodesWithin } from "./scene_index.js";

/**
 * @typedef {object} GradientPath
 * @property {number[]} nodes starting at the loss
 * @property {Set<number>} edges
 */

/**
 * Return the shortest path from a root of backward to an item.
 *
 * @param {import("./scene_index.js").SceneIndex} sceneIndex
 * @param {import("../shared_view_state.js").Item} item
 * @returns {GradientPath | null} null if no gradient reaches the item
 */
export function findGradientPath(sceneIndex, item) {
  const targets = targetNodes(sceneIndex, item);
  if (!targets.length) return null;
  // Breadth-first search from the targets: each node remembers the next node toward them.
  /** @type {Map<number, number>} */
  const toward = new Map(targets.map((node) => [node, -1]));
  const waiting = [...targets];
  for (let at = 0; at < waiting.length; at++) {
    const node = waiting[at];
    if (!sceneIndex.users[node].length) return tracePath(sceneIndex, node, toward);
    for (const user of sceneIndex.users[node]) {
      if (toward.has(user)) continue;
      toward.set(user, node);
      waiting.push(user);
    }
  }
  return null;
}

/**
 * @param {import("./scene_index.js").SceneIndex} sceneIndex
 * @param {import("../shared_view_state.js").Item} item
 * @returns {number[]}
 */
function targetNodes(sceneIndex, { kind, index }) {
  if (kind === "node") return [index];
  if (kind === "group") return nodesWithin(sceneIndex, index);
  const { node } = sceneIndex.scene.storages[index];
  return node < 0 ? [] : [node];
}

/**
 * @param {import("./scene_index.js").SceneIndex} sceneIndex
 * @param {number} root
 * @param {Map<number, number>} toward
 * @returns {GradientPath}
 */
function tracePath(sceneIndex, root, toward) {
  const nodes = [root];
  const steps = new Set();
  for (let next = toward.get(root) ?? -1; next >= 0; next = toward.get(next) ?? -1) {
    steps.add(`${nodes[nodes.length - 1]} ${next}`);
    nodes.push(next);
  }
  /** @type {Set<number>} */
  const edges = new Set();
  sceneIndex.scene.edges.forEach(({ source, target }, at) => {
    if (steps.has(`${source} ${target}`)) edges.add(at);
  });
  return { nodes, edges };
}
