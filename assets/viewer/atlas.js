// @ts-check
/** What can be looked up about a scene, worked out once. */

import { lifeOf } from "./replay.js";

/**
 * @typedef {object} Atlas
 * @property {import("./types.js").Scene} scene
 * @property {import("./types.js").Chip[][]} chips by node
 * @property {import("./types.js").Pennant[][]} pennants by node
 * @property {number[][]} findings by node
 * @property {number[][]} users nodes whose gradient feeds the node (towards the loss)
 * @property {number[][]} inputs nodes that the node feeds (towards the inputs)
 * @property {number[][]} members nodes directly in a group
 * @property {number[][]} children groups directly in a group
 * @property {Map<string, Map<number, string>>} source text by file and line
 * @property {import("./types.js").SceneMoment[][]} moments by storage
 * @property {Map<number, number>} storageOf index by storage id
 * @property {Map<number, ReturnType<typeof lifeOf>>} lives of groups, worked out when asked
 * @property {number} end of the recording, in nanoseconds, never 0
 */

/**
 * @param {import("./types.js").Scene} scene
 * @returns {Atlas}
 */
export function makeAtlas(scene) {
  const lists = (/** @type {any[]} */ rows) => Array.from(rows, () => /** @type {any[]} */ ([]));
  /** @type {Atlas} */
  const atlas = {
    scene,
    chips: lists(scene.nodes),
    pennants: lists(scene.nodes),
    findings: lists(scene.nodes),
    users: lists(scene.nodes),
    inputs: lists(scene.nodes),
    members: lists(scene.groups),
    children: lists(scene.groups),
    source: new Map(),
    lives: new Map(),
    moments: lists(scene.storages),
    storageOf: new Map(scene.storages.map((each) => [each.storage_id, each.index])),
    end: Math.max(scene.summary.end_ns, scene.memory.at(-1)?.time_ns ?? 0, 1),
  };
  for (const chip of scene.chips) atlas.chips[chip.node].push(chip);
  for (const moment of scene.moments) atlas.moments[moment.storage].push(moment);
  for (const pennant of scene.pennants) atlas.pennants[pennant.node].push(pennant);
  scene.findings.forEach((finding, at) =>
    new Set(finding.nodes).forEach((n) => atlas.findings[n].push(at)),
  );
  for (const edge of scene.edges) {
    atlas.users[edge.target].push(edge.source);
    atlas.inputs[edge.source].push(edge.target);
  }
  for (const node of scene.nodes) atlas.members[node.group].push(node.index);
  for (const group of scene.groups) {
    if (group.parent >= 0) atlas.children[group.parent].push(group.index);
  }
  for (const line of scene.lines) {
    const lines = atlas.source.get(line.filename) ?? new Map();
    atlas.source.set(line.filename, lines.set(line.lineno, line.text));
  }
  return atlas;
}

/**
 * The groups around a group, the outermost first, without the root and itself.
 *
 * @param {Atlas} atlas
 * @param {number} group
 * @returns {number[]}
 */
export function groupsAround(atlas, group) {
  const around = [];
  let at = atlas.scene.groups[group].parent;
  for (; at > 0; at = atlas.scene.groups[at].parent) around.push(at);
  return around.reverse();
}

/**
 * All nodes in a group and in the groups within it.
 *
 * @param {Atlas} atlas
 * @param {number} group
 * @returns {number[]}
 */
export function nodesWithin(atlas, group) {
  const found = [];
  const waiting = [group];
  for (let at = waiting.pop(); at !== undefined; at = waiting.pop()) {
    found.push(...atlas.members[at]);
    waiting.push(...atlas.children[at]);
  }
  return found.sort((a, b) => a - b);
}

/**
 * What stands for a node while some groups are closed: the outermost closed group around it, or
 * the node itself.
 *
 * @param {Atlas} atlas
 * @param {Set<number>} open
 * @param {number} node
 * @returns {import("./store.js").Item}
 */
export function visibleFor(atlas, open, node) {
  const { group } = atlas.scene.nodes[node];
  const closed = [...groupsAround(atlas, group), group].find((g) => g > 0 && !open.has(g));
  return closed === undefined ? { kind: "node", index: node } : { kind: "group", index: closed };
}

/**
 * When the nodes of a group are made and run.
 *
 * @param {Atlas} atlas
 * @param {number} group
 * @returns {ReturnType<typeof lifeOf>}
 */
export function lifeOfGroup(atlas, group) {
  let life = atlas.lives.get(group);
  if (!life) {
    life = lifeOf(nodesWithin(atlas, group).map((index) => atlas.scene.nodes[index]));
    atlas.lives.set(group, life);
  }
  return life;
}
