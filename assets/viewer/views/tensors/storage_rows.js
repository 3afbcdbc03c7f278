// @ts-check
/** The saved storages as rows of the lifelines and of the table, identical blocks folded. */

import { dotted, formatBytes, inModel, placeOf } from "../../scene/format_numbers_and_names.js";
import { stepAt } from "../../scene/step_of_time_or_node.js";
import { groupBy } from "../memory/rows_held_at_peak.js";
import { isHeldAt, isSavedIn, peakIn } from "../../scene/storage_holds.js";

/** @typedef {import("../../types.js").SceneStorage} SceneStorage */
/**
 * @typedef {object} Row one storage, or several
 * @property {SceneStorage[]} storages
 * @property {number} nbytes
 * @property {number} atPeak bytes that they hold at the peak
 * @property {string} [apart] what it differs in from rows of the same name and line
 */
/** @typedef {keyof typeof COLUMNS} Column */

/** Share of the peak that the rows of the sentence fill, of which it names so many. */
const MOST = 0.6;
const NAMED = 2;

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

  /**
   * @param {boolean} folded
   * @returns {Row[]} unsorted
   */
  group(folded) {
    /** @type {Map<string | number, Row>} */
    const rows = new Map();
    const { scene, step, matches } = this.store;
    this.peak = peakIn(scene, scene.steps[step] ?? { start_ns: 0, end_ns: Infinity });
    for (const storage of scene.storages) {
      if (!isSavedIn(scene, storage, step)) continue;
      if (matches && !matches.has(storage.node)) continue;
      const key = folded ? foldKey(storage) : storage.index;
      const row = rows.get(key) ?? { storages: [], nbytes: 0, atPeak: 0 };
      rows.set(key, row);
      row.storages.push(storage);
      // What checkpoint dropped is a row because of a problem, and no memory that is held.
      if (storage.holds.length) row.nbytes += storage.nbytes;
      if (isHeldAt(storage, this.peak.time)) row.atPeak += storage.nbytes;
    }
    return [...rows.values()];
  }

  /**
   * Give rows of the same name and line the shape and step in which they differ.
   *
   * @param {Row[]} rows
   */
  #addDifferences(rows) {
    const { scene } = this.store;
    const nameOf = (/** @type {Row} */ { storages }) =>
      `${namesOf(scene, storages)} ${placeOf(storages[0])}`;
    for (const same of groupBy(rows, nameOf)) {
      const texts = same.map(({ storages: [{ shape, holds }, another] }) => {
        const step = another || !scene.steps[1] ? undefined : scene.steps[stepAt(scene, holds[0])];
        return [shape, step ? `step ${step.number}` : ""];
      });
      same.forEach((row, at) => {
        const isOdd = (/** @type {number} */ column) =>
          texts.some((text) => text[column] !== texts[at][column]);
        row.apart = dotted(texts[at].filter((_, column) => isOdd(column)));
      });
    }
  }

  /** @returns {string} which rows fill most of the memory at the peak, whether or not they are folded */
  fillers() {
    const peak = this.peak?.nbytes ?? 0;
    /** @type {Set<string>} */
    const all = new Set();
    let sum = 0;
    for (const { storages, atPeak } of this.group(true).sort((a, b) => b.atPeak - a.atPeak)) {
      if (sum >= MOST * peak || !atPeak) break;
      sum += atPeak;
      all.add(namesOf(this.store.scene, storages));
    }
    const names = [...all];
    if (!names.length) return "";
    const rest = names.length > NAMED + 1 ? names.splice(NAMED).length : 0;
    const last = rest ? `${rest} more` : names.pop();
    const fill = names.length ? `${names.join(", ")} and ${last} fill` : `${last} fills`;
    return `${fill} ${formatBytes(sum)} of the ${formatBytes(peak)} at the peak.`;
  }

  /** @returns {Row[]} those that were written since their save first, unless a column was chosen */
  #sorted() {
    const { scene } = this.store;
    const rows = this.group(this.folded);
    const byBytes = this.column === "bytes";
    const valueOf = (/** @type {Row} */ { storages, nbytes }) =>
      byBytes
        ? nbytes
        : this.column === "tensor"
          ? namesOf(scene, storages)
          : COLUMNS[this.column](storages[0]);
    const harmFirst = (/** @type {Row} */ a, /** @type {Row} */ b) =>
      byBytes && this.descending ? +isHarmed(b.storages[0]) - +isHarmed(a.storages[0]) : 0;
    const sign = this.descending ? -1 : 1;
    this.#addDifferences(rows);
    return rows.sort(
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
  const { name, slots, shape, state, filename, lineno, holds } = storage;
  const owner = (slots[0] ?? "").split(".")[0]; // values of a compiled region have slots of their own
  const parts = [name, storage.module, storage.output_of].join("|").replace(/\d+/g, "#");
  return [parts, owner, shape, state, filename, lineno, !holds.length].join("|");
}

/**
 * @param {SceneStorage[]} storages
 * @returns {string} "h.0–10.attn"
 */
export const moduleRange = (storages) => rangeOf(storages.map((each) => each.module));

/**
 * Return the names of storages with the path of their module: of the one that returned them, or
 * else of the first that saved them.
 *
 * @param {import("../../types.js").Scene} scene
 * @param {SceneStorage[]} storages
 * @returns {string} "h.0–2.mlp.c_fc out", "h.0–2.attn q"
 */
export function namesOf(scene, storages) {
  const names = storages.map(({ name, module, output_of: source }) => {
    const own = inModel(scene, source || module);
    if (source) return `${own || source} out`;
    return own && !name.startsWith(`${own}.`) ? `${own} ${name}` : name;
  });
  return rangeOf(names);
}

/**
 * @param {string[]} names
 * @returns {string} one name, with the numbers in which they differ: 0–7, or 2,4 without 3
 */
function rangeOf(names) {
  const all = names.map((name) => name.split(/(\d+)/));
  const rangeAt = (/** @type {number} */ at) => {
    const numbers = [...new Set(all.map((parts) => parts[at]))].sort(compare);
    const last = numbers[numbers.length - 1];
    if (numbers.length === 1) return last;
    if (numbers.length === Number(last) - Number(numbers[0]) + 1) return `${numbers[0]}–${last}`;
    return numbers.length < 4 ? numbers.join(",") : `${numbers[0]}…${last}`;
  };
  return all[0].map((part, at) => (at % 2 ? rangeAt(at) : part)).join("");
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
