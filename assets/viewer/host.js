// @ts-check
/** Python and the viewer tell each other what is selected, looked at and coloured. */

import { COLOURS } from "./scene/colors.js";
import { formatPlace } from "./scene/format.js";
import { sameItem } from "./store.js";

/** @typedef {import("./store.js").Item} Item */
/** @typedef {import("./store.js").Store} Store */
/** @typedef {{kind: string, id: number, name: string, module: string, location: string}} Told */

/**
 * @param {Store} store
 * @param {import("./views/graph/graph_canvas.js").Graph} graph
 * @param {import("./types.js").HostModel} model
 * @returns {() => void} ends it
 */
export function connectHost(store, graph, model) {
  const heard = {
    "change:selected": () => hearSelected(store, model),
    "change:color_by": () => hearColour(store, model),
    "change:focused": () => hearFocus(store, graph, model),
  };
  store.subscribe((change) => {
    if (change === "selected") {
      model.set("selected", tellOf(store));
      model.save_changes();
    }
    if (change === "look" && model.get("color_by") !== store.colour) {
      model.set("color_by", store.colour);
      model.save_changes();
    }
  });
  for (const [name, hear] of Object.entries(heard)) {
    model.on(name, hear);
    hear();
  }
  return () => {
    for (const [name, hear] of Object.entries(heard)) model.off(name, hear);
  };
}

/**
 * What Python is told of the selection.
 *
 * @param {Store} store
 * @returns {Told | {}}
 */
function tellOf({ selected, scene }) {
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
 * @param {import("./types.js").HostModel} model
 */
function hearSelected(store, model) {
  const told = model.get("selected");
  if (!told) return;
  const item = itemOf(store, told);
  if (sameItem(item, store.selected)) return;
  if (item) store.reveal(item);
  else store.select(null);
}

/**
 * @param {Store} store
 * @param {Partial<Told>} told
 * @returns {Item | null}
 */
function itemOf({ scene, atlas }, { kind, id = -1 }) {
  if (kind === "group") return scene.groups[id] ? { kind: "group", index: id } : null;
  if (kind === "tensor") {
    const index = atlas.storageOf.get(id);
    return index === undefined ? null : { kind: "storage", index };
  }
  const node = scene.nodes.find((each) => each.node_id === id);
  return kind === "node" && node ? { kind: "node", index: node.index } : null;
}

/**
 * @param {Store} store
 * @param {import("./types.js").HostModel} model
 */
function hearColour(store, model) {
  const colour = model.get("color_by");
  if (COLOURS.includes(colour)) store.colourBy(colour);
}

/**
 * Open a group and look at it.
 *
 * @param {Store} store
 * @param {import("./views/graph/graph_canvas.js").Graph} graph
 * @param {import("./types.js").HostModel} model
 */
function hearFocus(store, graph, model) {
  const group = model.get("focused")?.group;
  if (group === undefined || !store.scene.groups[group]) return;
  store.reveal({ kind: "group", index: group });
  store.toggle(group, true);
  graph.lookAtGroup(group);
}
