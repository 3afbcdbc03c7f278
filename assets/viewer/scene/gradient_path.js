// @ts-check
/** The way of the gradient from the loss to a node. */

import { nodesWithin } from "./scene_index.js";

/**
 * @typedef {object} Route
 * @property {number[]} nodes from the loss on
 * @property {Set<number>} edges
 */

/**
 * The shortest way from where backward began to an item.
 *
 * @param {import("./scene_index.js").Atlas} atlas
 * @param {import("../store.js").Item} item
 * @returns {Route | null} null where no way leads there
 */
export function routeTo(atlas, item) {
  const targets = targetsOf(atlas, item);
  if (!targets.length) return null;
  // Backwards from the targets: each node remembers the next one on its way to them.
  /** @type {Map<number, number>} */
  const towards = new Map(targets.map((node) => [node, -1]));
  const waiting = [...targets];
  for (let at = 0; at < waiting.length; at++) {
    const node = waiting[at];
    if (!atlas.users[node].length) return routeFrom(atlas, node, towards);
    for (const user of atlas.users[node]) {
      if (towards.has(user)) continue;
      towards.set(user, node);
      waiting.push(user);
    }
  }
  return null;
}

/**
 * @param {import("./scene_index.js").Atlas} atlas
 * @param {import("../store.js").Item} item
 * @returns {number[]}
 */
function targetsOf(atlas, { kind, index }) {
  if (kind === "node") return [index];
  if (kind === "group") return nodesWithin(atlas, index);
  const { node } = atlas.scene.storages[index];
  return node < 0 ? [] : [node];
}

/**
 * @param {import("./scene_index.js").Atlas} atlas
 * @param {number} root
 * @param {Map<number, number>} towards
 * @returns {Route}
 */
function routeFrom(atlas, root, towards) {
  const nodes = [root];
  const steps = new Set();
  for (let next = towards.get(root) ?? -1; next >= 0; next = towards.get(next) ?? -1) {
    steps.add(`${nodes[nodes.length - 1]} ${next}`);
    nodes.push(next);
  }
  /** @type {Set<number>} */
  const edges = new Set();
  atlas.scene.edges.forEach(({ source, target }, at) => {
    if (steps.has(`${source} ${target}`)) edges.add(at);
  });
  return { nodes, edges };
}
