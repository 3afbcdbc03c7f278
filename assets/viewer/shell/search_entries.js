// @ts-check
/** The entries of the search: modules, ops, nodes, parameters, lines and tensors. */

import { formatBytes, plural, dotted, placeOf } from "../scene/format_numbers_and_names.js";

/** @typedef {import("../shared_view_state.js").Item} Item */

/**
 * @typedef {object} Entry
 * @property {"module" | "op" | "node" | "parameter" | "line" | "tensor" | "run" | "ask"} kind
 * @property {Item | null} item null of an entry for several items, which completes the search
 * @property {string} fill the query that it completes the search to
 * @property {string} title
 * @property {string} aside
 * @property {string} text all searched text, in lower case
 * @property {() => unknown} [run] of a command
 * @property {import("../types.js").SceneLine} [line] that it shows
 * @property {string} [asks] the name of a parameter without a node, whose answer it shows
 */

/**
 * @param {import("../scene/scene_index.js").SceneIndex} sceneIndex
 * @returns {Entry[]} those for several items first
 */
export function searchEntries(sceneIndex) {
  const { groups, nodes, storages, parameter_badges, unused_parameters, lines } = sceneIndex.scene;
  const modules = groups
    .slice(1)
    .map((group) =>
      makeEntry("module", { kind: "group", index: group.index }, group.path || group.label, [
        plural(group.node_count, "node"),
        group.label,
        group.type_name,
      ]),
    );
  // Each step has a badge for a parameter: the last one stands for all.
  const named = new Map([...parameter_badges].map((badge) => [badge.name || badge.label, badge]));
  const parameters = [...named.values()].map((badge) =>
    makeEntry("parameter", { kind: "node", index: badge.node }, badge.name || badge.label, [
      badge.shape,
    ]),
  );
  const tensors = storages.map((storage) =>
    makeEntry("tensor", { kind: "storage", index: storage.index }, storage.name, [
      `s${storage.storage_id} · ${formatBytes(storage.nbytes)}`,
      storage.shape,
      storage.module,
      ...storage.slots,
    ]),
  );
  return [
    ...sharedEntries("op", nodes, (node) => node.op),
    ...sharedEntries("line", nodes, (node) => (node.lineno ? placeOf(node) : "")),
    ...modules,
    ...nodes.map((node) => nodeEntry(sceneIndex, node)),
    ...parameters,
    ...unused_parameters.map(({ name, shape, module, state }) => ({
      ...makeEntry("parameter", null, name, [state, shape, module]),
      asks: name,
    })),
    ...tensors,
    ...[...lines].flatMap((line) => {
      const title = line.text.trim();
      const entry = makeEntry("line", null, title, [placeOf(line)]);
      return title && !/\b(?:site|dist)-packages\b/.test(line.filename) ? [{ ...entry, line }] : [];
    }),
  ];
}

/**
 * Return an entry for each name that several nodes share.
 *
 * @param {"op" | "line"} kind
 * @param {import("../types.js").SceneNode[]} nodes
 * @param {(node: import("../types.js").SceneNode) => string} nameOf
 * @returns {Entry[]}
 */
function sharedEntries(kind, nodes, nameOf) {
  /** @type {Map<string, number[]>} */
  const byName = new Map();
  for (const node of nodes) {
    const name = nameOf(node);
    if (!name) continue;
    const same = byName.get(name) ?? [];
    byName.set(name, same);
    same.push(node.index);
  }
  return [...byName]
    .filter(([, same]) => same.length > 1)
    .map(([name, same]) => makeEntry(kind, null, name, [plural(same.length, "node")]));
}

/**
 * @param {import("../scene/scene_index.js").SceneIndex} sceneIndex
 * @param {import("../types.js").SceneNode} node
 * @returns {Entry}
 */
function nodeEntry(sceneIndex, node) {
  const place = node.lineno ? placeOf(node) : "";
  const tensors = sceneIndex.savedTensors[node.index].map(({ slot, shape }) => `${slot} ${shape}`);
  return makeEntry("node", { kind: "node", index: node.index }, node.name, [
    dotted([node.module, place]),
    node.op,
    node.shape,
    ...tensors,
  ]);
}

/**
 * @param {Entry["kind"]} kind
 * @param {Item | null} item
 * @param {string} title
 * @param {string[]} details searched; the first one is displayed
 * @returns {Entry}
 */
function makeEntry(kind, item, title, details) {
  const text = [title, ...details].join(" ").toLowerCase();
  return { kind, item, fill: title, title, aside: details[0] ?? "", text };
}
