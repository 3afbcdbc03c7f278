// @ts-check
/**
 * Indexes of a scene: what belongs to each node, group and storage, and what is related to it.
 */

import { columnOf, defineLazy } from "../payload/lazy_rows.js";
import { placeKey } from "./source_line_costs.js";
import { lifetimeOf } from "./state_at_replayed_time.js";

/**
 * @typedef {object} SceneIndex
 * @property {import("../types.js").Scene} scene
 * @property {import("../types.js").SavedTensorBadge[][]} savedTensors by node
 * @property {import("../types.js").ParameterBadge[][]} parameters by node
 * @property {number[][]} findings by node
 * @property {Map<string, "path" | "mutation">} marks colors of the boxes that findings are about, by kind and index
 * @property {number[][]} users nodes from which the node receives gradients (toward the loss)
 * @property {number[][]} inputs nodes to which the node sends gradients (toward the inputs)
 * @property {number[][]} members nodes directly in a group
 * @property {number[][]} children groups directly in a group
 * @property {Map<string, Map<number, string>>} source text by file and line
 * @property {Set<string>} docstrings keys of the places of their lines
 * @property {Map<string, string>} reasons why nodes save their slots, "SoftmaxBackward0.result"
 * @property {import("../types.js").SceneStorageEvent[][]} storageEvents by storage
 * @property {Map<number, number>} storageOf index by storage id
 * @property {Map<number, import("./state_at_replayed_time.js").Lifetime>} lifetimes of groups, computed on demand
 * @property {number} end of the recording, in nanoseconds, never 0
 */

/** Shared by all empty lists: most of hundreds of thousands are empty. */
const EMPTY = /** @type {any[]} */ (/** @type {unknown} */ (Object.freeze([])));

/**
 * Group rows, or other values, by their owner.
 *
 * @template Value
 * @param {number} count number of owners
 * @param {ArrayLike<number>} owners of the rows; -1 is no owner
 * @param {ArrayLike<Value>} [values] by row; its index by default
 * @returns {any[][]} by owner
 */
function groupBy(count, owners, values) {
  /** @type {any[][]} */
  const lists = new Array(count).fill(EMPTY);
  for (let at = 0; at < owners.length; at++) {
    const owner = owners[at];
    const value = values ? values[at] : at;
    if (lists[owner] === EMPTY) lists[owner] = [value];
    else lists[owner]?.push(value);
  }
  return lists;
}

/**
 * @param {import("../types.js").Scene} scene
 * @returns {SceneIndex} whose parts are computed when they are read
 */
export function indexScene(scene) {
  const { nodes, groups } = scene;
  const parts = {
    savedTensors: () =>
      groupBy(nodes.length, columnOf(scene.saved_badges, "node"), scene.saved_badges),
    parameters: () =>
      groupBy(nodes.length, columnOf(scene.parameter_badges, "node"), scene.parameter_badges),
    findings: () => {
      const found = scene.findings.flatMap((finding, at) =>
        [...new Set(finding.nodes)].map((node) => ({ node, at })),
      );
      const owners = found.map(({ node }) => node);
      return groupBy(
        nodes.length,
        owners,
        found.map(({ at }) => at),
      );
    },
    marks: () => marksOf(/** @type {SceneIndex} */ (/** @type {unknown} */ (sceneIndex))),
    users: () =>
      groupBy(nodes.length, columnOf(scene.edges, "target"), columnOf(scene.edges, "source")),
    inputs: () =>
      groupBy(nodes.length, columnOf(scene.edges, "source"), columnOf(scene.edges, "target")),
    members: () => groupBy(groups.length, columnOf(nodes, "group")),
    children: () => groupBy(groups.length, columnOf(groups, "parent")),
    storageEvents: () =>
      groupBy(
        scene.storages.length,
        columnOf(scene.storage_events, "storage"),
        scene.storage_events,
      ),
    storageOf: () => new Map(scene.storages.map((each) => [each.storage_id, each.index])),
    source: () => sourceLines(scene),
    docstrings: () =>
      new Set(scene.lines.flatMap((each) => (each.docstring ? placeKey(each) : []))),
    reasons: () => new Map(scene.slot_reasons.map(({ slot, text }) => [slot, text])),
    end: () => Math.max(scene.summary.end_ns, scene.memory.at(-1)?.time_ns ?? 0, 1),
  };
  const sceneIndex = { scene, lifetimes: new Map() };
  for (const [name, compute] of Object.entries(parts)) defineLazy(sceneIndex, name, compute);
  return /** @type {SceneIndex} */ (/** @type {unknown} */ (sceneIndex));
}

/**
 * @param {SceneIndex} sceneIndex
 * @returns {SceneIndex["marks"]} red means harm, which a hint does not claim
 */
function marksOf(sceneIndex) {
  const { findings, nodes } = sceneIndex.scene;
  /** @type {SceneIndex["marks"]} */
  const marks = new Map();
  for (const { nodes: at, confidence } of [...findings].reverse()) {
    const color = confidence === "hint" ? "path" : "mutation";
    for (const node of at) {
      const { group } = nodes[node];
      marks.set(`node ${node}`, color);
      for (const each of [group, ...groupsAround(sceneIndex, group)])
        marks.set(`group ${each}`, color);
    }
  }
  return marks;
}

/**
 * @param {import("../types.js").Scene} scene
 * @returns {Map<string, Map<number, string>>} text by file and line
 */
function sourceLines(scene) {
  /** @type {Map<string, Map<number, string>>} */
  const source = new Map();
  const blamed = scene.cause_steps.filter(({ lineno }) => lineno);
  for (const { filename, lineno, text } of [
    ...blamed.map(({ filename, lineno, line }) => ({ filename, lineno, text: line })),
    ...scene.lines,
  ]) {
    const lines = source.get(filename) ?? new Map();
    source.set(filename, lines.set(lineno, text));
  }
  return source;
}

/**
 * Return the groups around a group, the outermost first, without the root and the group itself.
 *
 * @param {SceneIndex} sceneIndex
 * @param {number} group
 * @returns {number[]}
 */
export function groupsAround(sceneIndex, group) {
  const around = [];
  let at = sceneIndex.scene.groups[group].parent;
  for (; at > 0; at = sceneIndex.scene.groups[at].parent) around.push(at);
  return around.reverse();
}

/**
 * Return all nodes in a group and in the groups inside it.
 *
 * @param {SceneIndex} sceneIndex
 * @param {number} group
 * @returns {number[]}
 */
export function nodesWithin(sceneIndex, group) {
  const found = [];
  const waiting = [group];
  for (let at = waiting.pop(); at !== undefined; at = waiting.pop()) {
    found.push(...sceneIndex.members[at]);
    waiting.push(...sceneIndex.children[at]);
  }
  return found.sort((a, b) => a - b);
}

/**
 * Indices of the nodes and storages of a selection.
 *
 * @typedef {{nodes: Set<number>, storages: Set<number>}} Related
 */

/**
 * Return the nodes of a selection and the storages that they saved; for a storage, its nodes.
 *
 * @param {SceneIndex} sceneIndex
 * @param {import("../shared_view_state.js").Item | null} item
 * @returns {Related}
 */
export function relatedTo(sceneIndex, item) {
  if (!item) return { nodes: new Set(), storages: new Set() };
  const { scene, savedTensors, storageOf } = sceneIndex;
  if (item.kind === "storage") {
    const id = scene.storages[item.index].storage_id;
    const savers = scene.saved_badges.filter((badge) => badge.storage_id === id);
    return { nodes: new Set(savers.map(({ node }) => node)), storages: new Set([item.index]) };
  }
  const nodes = item.kind === "node" ? [item.index] : nodesWithin(sceneIndex, item.index);
  const saved = nodes.flatMap((node) => savedTensors[node]);
  const storages = saved.map((badge) => storageOf.get(badge.storage_id ?? -1) ?? -1);
  return { nodes: new Set(nodes), storages: new Set(storages) };
}

/**
 * Return the item that represents a node in the graph: the outermost closed group around it, or the node.
 *
 * @param {SceneIndex} sceneIndex
 * @param {Set<number>} open
 * @param {number} node
 * @returns {import("../shared_view_state.js").Item}
 */
export function visibleFor(sceneIndex, open, node) {
  const { group } = sceneIndex.scene.nodes[node];
  const closed = [...groupsAround(sceneIndex, group), group].find((g) => g > 0 && !open.has(g));
  return closed === undefined ? { kind: "node", index: node } : { kind: "group", index: closed };
}

/**
 * Return the lifetime of a group's nodes.
 *
 * @param {SceneIndex} sceneIndex
 * @param {number} group
 * @returns {import("./state_at_replayed_time.js").Lifetime}
 */
export function lifetimeOfGroup(sceneIndex, group) {
  let lifetime = sceneIndex.lifetimes.get(group);
  if (!lifetime) {
    lifetime = lifetimeOf(
      nodesWithin(sceneIndex, group).map((index) => sceneIndex.scene.nodes[index]),
    );
    sceneIndex.lifetimes.set(group, lifetime);
  }
  return lifetime;
}
