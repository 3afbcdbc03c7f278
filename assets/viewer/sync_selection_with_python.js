// @ts-check
/**
 * Keeps the selection, the focused group, the coloring and the state of the view in step with the
 * Python widget.
 */

import { COLORS } from "./scene/graph_colorings.js";
import { sameItem } from "./shared_view_state.js";
import { SLOWLY_MS, STATE, describeState, readState } from "./view_state_in_address.js";
import { describeSelection, findItem } from "./selection_to_and_from_id.js";

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
