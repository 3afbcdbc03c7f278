// @ts-check
/** The selected item as kind, id and names, and the item that has a kind and id. */

import { formatPlace } from "./scene/format_numbers_and_names.js";

/** @typedef {import("./shared_view_state.js").Item} Item */
/** @typedef {import("./shared_view_state.js").Store} Store */

/**
 * The value of the widget's `selected`.
 *
 * @typedef {{kind: string, id: number, name: string, module: string, location: string}} Selection
 */

/**
 * @param {Store} store
 * @returns {Selection | {}}
 */
export function describeSelection({ selected, scene }) {
  if (!selected) return {};
  if (selected.kind === "group") {
    const { index, label, path } = scene.groups[selected.index];
    return { kind: "group", id: index, name: label, module: path, location: "" };
  }
  const storage = selected.kind === "storage" ? scene.storages[selected.index] : null;
  const { name, module, filename, lineno } = storage ?? scene.nodes[selected.index];
  const location = filename && lineno ? `${filename}:${lineno}` : formatPlace(filename, lineno);
  const id = storage ? storage.storage_id : scene.nodes[selected.index].node_id;
  return { kind: storage ? "tensor" : "node", id, name, module, location };
}

/**
 * @param {Store} store
 * @param {Partial<Selection>} selection
 * @returns {Item | null}
 */
export function findItem({ scene, sceneIndex }, { kind, id = -1 }) {
  if (kind === "group") return scene.groups[id] ? { kind: "group", index: id } : null;
  if (kind === "tensor") {
    const index = sceneIndex.storageOf.get(id);
    return index === undefined ? null : { kind: "storage", index };
  }
  const node = scene.nodes.find((each) => each.node_id === id);
  return kind === "node" && node ? { kind: "node", index: node.index } : null;
}
