// @ts-check
/** Keeps the selection, the focused group and the coloring in step with the Python widget. */

import { COLORS } from "./scene/colors.js";
import { formatPlace } from "./scene/format.js";
import { sameItem } from "./store.js";

/** @typedef {import("./store.js").Item} Item */
/** @typedef {import("./store.js").Store} Store */

/**
 * The part of anywidget's model that the viewer uses.
 *
 * @typedef {object} HostModel
 * @property {(name: string) => any} get
 * @property {(name: string, value: any) => void} set
 * @property {() => void} save_changes
 * @property {(name: string, callback: () => void) => void} on
 * @property {(name: string, callback: () => void) => void} off
 */

/**
 * The value of the widget's `selected`.
 *
 * @typedef {{kind: string, id: number, name: string, module: string, location: string}} Selection
 */

/**
 * @param {Store} store
 * @param {HostModel} model
 * @returns {() => void} disconnects them
 */
export function connectHost(store, model) {
  const handlers = {
    "change:selected": () => readSelection(store, model),
    "change:color_by": () => readColors(store, model),
    "change:focused": () => readFocus(store, model),
    "change:_answer": () => {
      const answer = model.get("_answer");
      if (!answer?.subject) return;
      store.scene.answers.push(answer); // the same question is not asked again
      if (answer.subject === store.trail?.subject) store.showTrail({ ...store.trail, ...answer });
    },
  };
  store.subscribe(["selected"], () => {
    model.set("selected", describeSelection(store));
    model.save_changes();
  });
  store.subscribe(["colorBy"], () => {
    if (model.get("color_by") === store.colorBy) return;
    model.set("color_by", store.colorBy);
    model.save_changes();
  });
  if (model.get("_answer")) {
    store.askHost = (subject) => {
      model.set("_question", subject);
      model.save_changes();
    };
  }
  for (const [name, handle] of Object.entries(handlers)) {
    model.on(name, handle);
    handle();
  }
  return () => {
    for (const [name, handle] of Object.entries(handlers)) model.off(name, handle);
  };
}

/**
 * Keep the view and the selection in the address of a report: `#view=tensors&tensor=12`.
 *
 * @param {Store} store
 * @returns {() => void} disconnects them
 */
export function connectAddress(store) {
  const read = () => {
    const address = new URLSearchParams(location.hash.slice(1));
    const module = address.get("module");
    const group = store.scene.groups.findIndex((each) => each.path === module && each.repeat === 1);
    const kind = address.has("tensor") ? "tensor" : "node";
    const item = module ? { kind: "group", id: group } : { kind, id: Number(address.get(kind)) };
    const found = address.has(module ? "module" : kind) && findItem(store, item);
    if (found && !sameItem(found, store.selected)) store.reveal(found);
    const view = address.get("view");
    if (view && store.hasView(view)) store.set("view", view);
  };
  const write = () => {
    const address = new URLSearchParams({ view: store.view });
    const selection = /** @type {Partial<Selection>} */ (describeSelection(store));
    if (selection.kind === "group") address.set("module", selection.module ?? "");
    else if (selection.kind) address.set(selection.kind, String(selection.id));
    history.replaceState(null, "", `#${address}`);
  };
  read();
  store.subscribe(["selected", "view"], write);
  addEventListener("hashchange", read);
  return () => removeEventListener("hashchange", read);
}

/**
 * @param {Store} store
 * @returns {Selection | {}}
 */
function describeSelection({ selected, scene }) {
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
 * @param {HostModel} model
 */
function readSelection(store, model) {
  const selection = model.get("selected");
  if (!selection) return;
  const item = findItem(store, selection);
  if (sameItem(item, store.selected)) return;
  if (item) store.reveal(item);
  else store.set("selected", null);
}

/**
 * @param {Store} store
 * @param {Partial<Selection>} selection
 * @returns {Item | null}
 */
function findItem({ scene, sceneIndex }, { kind, id = -1 }) {
  if (kind === "group") return scene.groups[id] ? { kind: "group", index: id } : null;
  if (kind === "tensor") {
    const index = sceneIndex.storageOf.get(id);
    return index === undefined ? null : { kind: "storage", index };
  }
  const node = scene.nodes.find((each) => each.node_id === id);
  return kind === "node" && node ? { kind: "node", index: node.index } : null;
}

/**
 * @param {Store} store
 * @param {HostModel} model
 */
function readColors(store, model) {
  const colorBy = model.get("color_by");
  if (COLORS.includes(colorBy)) store.set("colorBy", colorBy);
}

/**
 * @param {Store} store
 * @param {HostModel} model
 */
function readFocus(store, model) {
  const group = model.get("focused")?.group;
  if (group !== undefined && store.scene.groups[group]) store.focusGroup(group);
}
