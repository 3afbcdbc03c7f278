// @ts-check
/** Keeps the selection, the focused group and the coloring in step with the Python widget. */

import { COLORS } from "./scene/graph_colorings.js";
import { formatPlace } from "./scene/format_numbers_and_names.js";
import { sameItem } from "./shared_view_state.js";

/** @typedef {import("./shared_view_state.js").Item} Item */
/** @typedef {import("./shared_view_state.js").Store} Store */

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
    "change:state": () => {
      const state = model.get("state");
      if (state && state !== describeState(store)) readState(store, state);
    },
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
  if (model.get("state") !== undefined) {
    let waiting = false;
    const write = () => {
      waiting = false;
      model.set("state", describeState(store));
      model.save_changes();
    };
    store.subscribe([...STATE], () => {
      if (!waiting) setTimeout(write, SLOWLY_MS);
      waiting = true;
    });
  }
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

/** Between two messages about the state. */
const SLOWLY_MS = 300;

/** The changes that end up in an address; those in `STEPS` are where the back button leads. */
const STATE = /** @type {const} */ (["view", "step", "reveal", "selected", "open", "time", "line"]);
const STEPS = ["view", "step", "reveal"];

/**
 * Keep the state in the address of a report: `#view=tensors&tensor=12`. Buttons of the browser go
 * back to earlier views, steps and places.
 *
 * @param {Store} store
 * @returns {() => void} disconnects them
 */
export function connectAddress(store) {
  let reading = false;
  let goes = false;
  let waiting = false;
  let later = 0;
  const read = () => {
    reading = true;
    readState(store, location.hash.slice(1));
    reading = false;
  };
  const write = () => {
    waiting = false;
    clearTimeout(later);
    later = 0;
    const address = `#${describeState(store)}`;
    // A report inside of another page has no address of its own.
    if (address !== location.hash && location.protocol !== "about:") {
      history[goes ? "pushState" : "replaceState"](null, "", address);
    }
    goes = false;
  };
  read();
  if (location.hash) write();
  store.subscribe([...STATE], (change) => {
    goes ||= !reading && STEPS.includes(change);
    // A replay changes the time in each frame; browsers limit how often an address may change.
    if (change === "time") {
      later ||= window.setTimeout(write, SLOWLY_MS);
      return;
    }
    // One action changes several parts of the state.
    if (!waiting) queueMicrotask(write);
    waiting = true;
  });
  addEventListener("popstate", read);
  return () => removeEventListener("popstate", read);
}

/**
 * Return the state as text, which `readState` displays again.
 *
 * @param {Store} store
 * @returns {string} "view=tensors&step=1&tensor=12&open=3.-4&time=1700"
 */
export function describeState(store) {
  const { scene, open, step, time, line, view } = store;
  const address = new URLSearchParams({ view });
  if (step >= 0) address.set("step", String(scene.steps[step].number));
  const selection = /** @type {Partial<Selection>} */ (describeSelection(store));
  if (selection.kind === "group" && selection.module) address.set("module", selection.module);
  else if (selection.kind) address.set(selection.kind, String(selection.id));
  if (line && view === "source") address.set("line", `${line.filename}:${line.lineno}`);
  const toggled = [...scene.groups]
    .filter(({ index, open: first }) => index && Boolean(first) !== open.has(index))
    .map(({ index }) => (open.has(index) ? index : -index));
  if (toggled.length) address.set("open", toggled.join("."));
  if (time !== null) address.set("time", String(Math.round(time)));
  return String(address);
}

/**
 * Display what `describeState` returned.
 *
 * @param {Store} store
 * @param {string} text
 */
export function readState(store, text) {
  const address = new URLSearchParams(text);
  if (address.has("view") || address.has("open")) {
    const toggled = (address.get("open") ?? "").split(".").map(Number);
    for (const { index, open } of [...store.scene.groups]) {
      const flipped = toggled.includes(open ? -index : index);
      if (index) store.toggle(index, flipped ? !open : Boolean(open));
    }
  }
  const number = Number(address.get("step") ?? -1);
  store.showStep(store.scene.steps.findIndex((each) => each.number === number));
  const module = address.get("module");
  const group = store.scene.groups.findIndex((each) => each.path === module && each.repeat === 1);
  const kind = ["tensor", "group"].find((each) => address.has(each)) ?? "node";
  const item = module ? { kind: "group", id: group } : { kind, id: Number(address.get(kind)) };
  const found = address.has(module ? "module" : kind) && findItem(store, item);
  if (found && !sameItem(found, store.selected)) store.reveal(found);
  const [, filename, lineno] = /^(.*):(\d+)$/.exec(address.get("line") ?? "") ?? [];
  if (filename) store.showLine(filename, Number(lineno));
  store.set("time", address.has("time") ? Number(address.get("time")) : null);
  const view = address.get("view");
  if (view && store.hasView(view)) store.set("view", view);
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
