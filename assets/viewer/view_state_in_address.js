// @ts-check
/**
 * The view, step, selection, open groups and time as text, and the address of a report that keeps
 * them.
 */

import { sameItem } from "./shared_view_state.js";
import { describeSelection, findItem } from "./selection_to_and_from_id.js";

/** @typedef {import("./shared_view_state.js").Store} Store */
/** @typedef {import("./selection_to_and_from_id.js").Selection} Selection */

/** Between two messages about the state. */
export const SLOWLY_MS = 300;

/** The changes that end up in an address; those in `STEPS` are where the back button leads. */
export const STATE = /** @type {const} */ ([
  "view",
  "step",
  "reveal",
  "selected",
  "open",
  "time",
  "line",
]);

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
