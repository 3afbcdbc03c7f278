// @ts-check
/** What can be looked up about a scene, worked out once. */

import { later } from "../payload/decode.js";
import { lifeOf } from "./replay.js";

/**
 * @typedef {object} Atlas
 * @property {import("../types.js").Scene} scene
 * @property {import("../types.js").Chip[][]} chips by node
 * @property {import("../types.js").Pennant[][]} pennants by node
 * @property {number[][]} findings by node
 * @property {number[][]} users nodes whose gradient feeds the node (towards the loss)
 * @property {number[][]} inputs nodes that the node feeds (towards the inputs)
 * @property {number[][]} members nodes directly in a group
 * @property {number[][]} children groups directly in a group
 * @property {Map<string, Map<number, string>>} source text by file and line
 * @property {import("../types.js").SceneMoment[][]} moments by storage
 * @property {Map<number, number>} storageOf index by storage id
 * @property {Map<number, ReturnType<typeof lifeOf>>} lives of groups, worked out when asked
 * @property {number} end of the recording, in nanoseconds, never 0
 */

/** Stands for all lists that hold nothing: most do not, and there are hundreds of thousands. */
const NONE = /** @type {any[]} */ (/** @type {unknown} */ (Object.freeze([])));

/**
 * Lists of what belongs to each of `count` things.
 *
 * @template Row
 * @param {number} count
 * @param {Row[]} rows
 * @param {(row: Row) => number} ownerOf
 * @param {(row: Row, at: number) => any} [valueOf] the row itself when left out
 * @returns {any[][]}
 */
function listed(count, rows, ownerOf, valueOf = (row) => row) {
  /** @type {any[][]} */
  const lists = new Array(count).fill(NONE);
  rows.forEach((row, at) => {
    const owner = ownerOf(row);
    if (lists[owner] === NONE) lists[owner] = [valueOf(row, at)];
    else lists[owner].push(valueOf(row, at));
  });
  return lists;
}

/**
 * @param {import("../types.js").Scene} scene
 * @returns {Atlas}
 */
export function makeAtlas(scene) {
  const { nodes, groups, edges, storages, moments } = scene;
  const found = scene.findings.flatMap((finding, at) =>
    [...new Set(finding.nodes)].map((node) => ({ node, at })),
  );
  /** @type {Map<string, Map<number, string>>} */
  const source = new Map();
  for (const line of scene.lines) {
    const lines = source.get(line.filename) ?? new Map();
    source.set(line.filename, lines.set(line.lineno, line.text));
  }
  const atlas = {
    scene,
    chips: listed(nodes.length, scene.chips, (chip) => chip.node),
    pennants: listed(nodes.length, scene.pennants, (pennant) => pennant.node),
    findings: listed(
      nodes.length,
      found,
      ({ node }) => node,
      ({ at }) => at,
    ),
    members: listed(
      groups.length,
      nodes,
      (node) => node.group,
      (node) => node.index,
    ),
    children: listed(
      groups.length,
      groups.slice(1),
      (group) => group.parent,
      (group) => group.index,
    ),
    moments: listed(storages.length, moments, (moment) => moment.storage),
    storageOf: new Map(storages.map((each) => [each.storage_id, each.index])),
    source,
    lives: new Map(),
    end: Math.max(scene.summary.end_ns, scene.memory.at(-1)?.time_ns ?? 0, 1),
  };
  const ends = (/** @type {"source" | "target"} */ at, /** @type {"source" | "target"} */ other) =>
    listed(
      nodes.length,
      edges,
      (edge) => edge[at],
      (edge) => edge[other],
    );
  later(atlas, "users", () => ends("target", "source"));
  later(atlas, "inputs", () => ends("source", "target"));
  return /** @type {Atlas} */ (/** @type {unknown} */ (atlas));
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
 * @returns {import("../store.js").Item}
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
