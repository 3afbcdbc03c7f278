// @ts-check
/** All that can be searched for: modules, ops, nodes, parameters, lines and tensors. */

import { formatBytes, formatPlace, plural } from "../scene/format.js";

/** @typedef {import("../store.js").Item} Item */

/**
 * @typedef {object} Entry
 * @property {"module" | "op" | "node" | "parameter" | "line" | "tensor"} kind
 * @property {Item | null} item null where it stands for several: it completes the search
 * @property {string} fill what it completes the search to
 * @property {string} title
 * @property {string} aside
 * @property {string} text all of it in small letters
 */

/**
 * @param {import("../scene/scene_index.js").Atlas} atlas
 * @returns {Entry[]} what stands for several things first
 */
export function entriesOf(atlas) {
  const { groups, nodes, storages, pennants } = atlas.scene;
  const modules = groups
    .slice(1)
    .map((group) =>
      entryOf("module", { kind: "group", index: group.index }, group.path || group.label, [
        plural(group.node_count, "node"),
        group.label,
        group.type_name,
      ]),
    );
  const parameters = pennants.map((pennant) =>
    entryOf("parameter", { kind: "node", index: pennant.node }, pennant.name || pennant.label, [
      pennant.shape,
    ]),
  );
  const tensors = storages.map((storage) =>
    entryOf("tensor", { kind: "storage", index: storage.index }, storage.name, [
      `s${storage.storage_id} · ${formatBytes(storage.nbytes)}`,
      storage.shape,
      storage.module,
      ...storage.slots,
    ]),
  );
  return [
    ...manyOf("op", nodes, (node) => node.op),
    ...manyOf("line", nodes, (node) =>
      node.lineno ? formatPlace(node.filename, node.lineno) : "",
    ),
    ...modules,
    ...nodes.map((node) => nodeEntry(atlas, node)),
    ...parameters,
    ...tensors,
  ];
}

/**
 * One entry for all nodes that share something.
 *
 * @param {"op" | "line"} kind
 * @param {import("../types.js").SceneNode[]} nodes
 * @param {(node: import("../types.js").SceneNode) => string} nameOf
 * @returns {Entry[]}
 */
function manyOf(kind, nodes, nameOf) {
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
    .map(([name, same]) => entryOf(kind, null, name, [plural(same.length, "node")]));
}

/**
 * @param {import("../scene/scene_index.js").Atlas} atlas
 * @param {import("../types.js").SceneNode} node
 * @returns {Entry}
 */
function nodeEntry(atlas, node) {
  const place = node.lineno ? formatPlace(node.filename, node.lineno) : "";
  const tensors = atlas.chips[node.index].map((chip) => `${chip.slot} ${chip.shape}`);
  return entryOf("node", { kind: "node", index: node.index }, node.name, [
    [node.module, place].filter(Boolean).join(" · "),
    node.op,
    node.shape,
    ...tensors,
  ]);
}

/**
 * @param {Entry["kind"]} kind
 * @param {Item | null} item
 * @param {string} title
 * @param {string[]} words the first of them is shown
 * @returns {Entry}
 */
function entryOf(kind, item, title, words) {
  const text = [title, ...words].join(" ").toLowerCase();
  return { kind, item, fill: title, title, aside: words[0] ?? "", text };
}
