// @ts-check
/** The saved storages as rows of the lifelines and of the table, identical blocks folded. */

import { nameRange, placeOf } from "../../scene/format_numbers_and_names.js";
import { isHeldAt, isSavedIn, peakIn } from "../../scene/storage_holds.js";

/** @typedef {import("../../types.js").SceneStorage} SceneStorage */
/**
 * @typedef {object} Row one storage, or several
 * @property {SceneStorage[]} storages
 * @property {number} nbytes
 * @property {number} atPeak bytes that they hold at the peak
 * @property {number} [held] number of those that are held then
 */
/** @typedef {keyof typeof COLUMNS} Column */

export const COLUMNS = {
  tensor: (/** @type {SceneStorage} */ each) => each.name,
  "saved for": (/** @type {SceneStorage} */ each) => each.slots[0] ?? "",
  module: (/** @type {SceneStorage} */ each) => each.module,
  line: (/** @type {SceneStorage} */ each) => placeOf(each),
  shape: (/** @type {SceneStorage} */ each) => each.shape,
  "version, state": (/** @type {SceneStorage} */ each) => `${each.state} ${each.version ?? ""}`,
  bytes: (/** @type {SceneStorage} */ each) => each.nbytes,
};

/**
 * @param {SceneStorage} storage
 * @returns {boolean} whether it was written since its save
 */
const isHarmed = ({ state }) => state === "broken" || state === "stale";

export class StorageRows {
  /** @param {import("../../shared_view_state.js").Store} store */
  constructor(store) {
    this.store = store;
    this.folded = store.scene.storages.length > 12;
    /** @type {Column} */
    this.column = "bytes";
    this.descending = true;
    /** True for a column that was chosen; else the rows that hold most at the peak are first. */
    this.chosen = false;
    /** @type {(() => void)[]} */
    this.listeners = [];
    this.rows = this.#sorted();
    store.subscribe(["step", "matches"], () => this.change({}));
  }

  /** @param {{folded?: boolean, column?: Column, descending?: boolean, chosen?: boolean}} order */
  change(order) {
    Object.assign(this, { chosen: this.chosen || !!order.column }, order);
    this.rows = this.#sorted();
    for (const listener of this.listeners) listener();
  }

  /** @returns {Row[]} those that were written since their save first, unless a column was chosen */
  #sorted() {
    /** @type {Map<string | number, Row>} */
    const rows = new Map();
    const { scene, step, matches } = this.store;
    this.peak = peakIn(scene, scene.steps[step] ?? { start_ns: 0, end_ns: Infinity });
    for (const storage of scene.storages) {
      if (!isSavedIn(scene, storage, step)) continue;
      if (matches && !matches.has(storage.node)) continue;
      const key = this.folded ? foldKey(storage) : storage.index;
      const row = rows.get(key) ?? { storages: [], nbytes: 0, atPeak: 0, held: 0 };
      rows.set(key, row);
      row.storages.push(storage);
      // What checkpoint dropped is a row because of a problem, and no memory that is held.
      if (storage.holds.length) row.nbytes += storage.nbytes;
      if (isHeldAt(storage, this.peak.time)) {
        row.atPeak += storage.nbytes;
        row.held = (row.held ?? 0) + 1;
      }
    }
    const byBytes = this.column === "bytes";
    const valueOf = (/** @type {Row} */ { storages, nbytes }) =>
      byBytes ? nbytes : COLUMNS[this.column](storages[0]);
    const harmFirst = (/** @type {Row} */ a, /** @type {Row} */ b) =>
      byBytes && this.descending ? +isHarmed(b.storages[0]) - +isHarmed(a.storages[0]) : 0;
    const sign = this.descending ? -1 : 1;
    return [...rows.values()].sort(
      (a, b) =>
        harmFirst(a, b) ||
        (this.chosen ? 0 : b.atPeak - a.atPeak) ||
        sign * compare(valueOf(a), valueOf(b)),
    );
  }
}

/**
 * Return a key that is equal for the same tensor of identical blocks.
 *
 * @param {SceneStorage} storage
 * @returns {string}
 */
export function foldKey(storage) {
  const module = storage.module.replace(/\d+/g, "#");
  const { name, slots, shape, state, filename, lineno, holds } = storage;
  const owner = (slots[0] ?? "").split(".")[0]; // values of a compiled region have slots of their own
  const parts = [owner, shape, state, filename, lineno, module, !holds.length];
  return [name.replace(/\d+/g, "#"), ...parts].join("|");
}

/**
 * @param {SceneStorage[]} storages
 * @returns {string} "h.0–10.attn"
 */
export const moduleRange = (storages) => rangeOf(storages.map((each) => each.module));

/**
 * @param {SceneStorage[]} storages
 * @returns {string} "h.0–2 out"
 */
export const namesOf = (storages) => rangeOf(storages.map((each) => each.name));

/**
 * @param {string[]} names
 * @returns {string}
 */
export function rangeOf(names) {
  const sorted = [...new Set(names)].sort(compare);
  return nameRange(sorted[0], sorted[sorted.length - 1]);
}

/**
 * @param {string | number} a
 * @param {string | number} b
 * @returns {number}
 */
function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}
