// @ts-check
/** The table of saved storages, sortable, with identical blocks folded. */

import { button, h } from "../../dom.js";
import { formatBytes, formatCount, formatPlace } from "../../scene/format.js";
import { inStep, stepAt } from "../../scene/steps.js";
import { icon } from "../../canvas/glyph_shapes.js";

/** @typedef {import("../../types.js").SceneStorage} SceneStorage */
/** @typedef {{storages: SceneStorage[], nbytes: number}} Row one storage, or folded storages */
/** @typedef {keyof typeof COLUMNS} Column */

const PAGE_ROWS = 200;

const COLUMNS = {
  tensor: (/** @type {SceneStorage} */ each) => each.name,
  "saved for": (/** @type {SceneStorage} */ each) => each.slots[0] ?? "",
  module: (/** @type {SceneStorage} */ each) => each.module,
  line: (/** @type {SceneStorage} */ each) => formatPlace(each.filename, each.lineno),
  shape: (/** @type {SceneStorage} */ each) => each.shape,
  "version, state": (/** @type {SceneStorage} */ each) => stateSortKey(each),
  bytes: (/** @type {SceneStorage} */ each) => each.nbytes,
};

export class SavedTensorTable {
  /** @param {import("../../store.js").Store} store */
  constructor(store) {
    this.store = store;
    /** @type {Column} */
    this.column = "bytes";
    this.descending = true;
    this.folded = store.scene.storages.length > 12;
    this.shown = PAGE_ROWS;
    this.element = h("div", "agv-scroll agv-saved-table");
    store.subscribe(["selected", "step", "matches"], () => this.fill());
    this.fill();
  }

  /** @param {boolean} folded */
  fold(folded) {
    this.folded = folded;
    this.fill();
  }

  fill() {
    const rows = this.#rows();
    const largest = Math.max(1, ...rows.map((row) => row.nbytes));
    const head = h("tr", {}, ...Object.keys(COLUMNS).map((name) => this.#head(name)));
    const body = rows.slice(0, this.shown).map((row) => this.#row(row, largest));
    const rest = rows.length - body.length;
    const label = `Show ${formatCount(Math.min(rest, PAGE_ROWS))} of ${formatCount(rest)} more`;
    const more = () => {
      this.shown += PAGE_ROWS;
      this.fill();
    };
    this.element.replaceChildren(
      h("table", "agv-table agv-table-sorted", h("thead", {}, head), h("tbody", {}, ...body)),
      ...(rest > 0 ? [button(label, "agv-link agv-more", more)] : []),
    );
  }

  /** @returns {Row[]} */
  #rows() {
    /** @type {Map<string | number, Row>} */
    const rows = new Map();
    const { scene, step, matches } = this.store;
    for (const storage of scene.storages) {
      if (!inStep(step, () => stepAt(scene, storage.holds[0] ?? 0))) continue;
      if (matches && !matches.has(storage.node)) continue;
      const key = this.folded ? foldKey(storage) : storage.index;
      const row = rows.get(key) ?? { storages: [], nbytes: 0 };
      rows.set(key, row);
      row.storages.push(storage);
      row.nbytes += storage.nbytes;
    }
    const valueOf = (/** @type {Row} */ row) =>
      this.column === "bytes" ? row.nbytes : COLUMNS[this.column](row.storages[0]);
    const sign = this.descending ? -1 : 1;
    return [...rows.values()].sort((a, b) => sign * compare(valueOf(a), valueOf(b)));
  }

  /**
   * @param {string} name
   * @returns {HTMLElement}
   */
  #head(name) {
    const column = /** @type {Column} */ (name);
    const active = column === this.column;
    const sort = () => {
      this.descending = active ? !this.descending : column === "bytes";
      this.column = column;
      this.fill();
    };
    const order = this.descending ? "descending" : "ascending";
    const direction = active && !this.descending ? "agv-ascending" : "";
    return h(
      "th",
      {
        class: column === "bytes" ? "agv-right" : "",
        attrs: { "aria-sort": active ? order : "none" },
      },
      button(
        `Sort by ${name}`,
        "agv-sort",
        sort,
        name,
        ...(active ? [icon("sorted", direction)] : []),
      ),
    );
  }

  /**
   * @param {Row} row
   * @param {number} largest bytes of all rows
   * @returns {HTMLElement}
   */
  #row({ storages, nbytes }, largest) {
    const first = storages[0];
    const item = /** @type {const} */ ({ kind: "storage", index: first.index });
    const selected = storages.some(({ index }) => this.store.related.storages.has(index));
    const place = formatPlace(first.filename, first.lineno);
    const bar = h("span", "agv-table-bar");
    bar.style.width = `${Math.max(1, (nbytes / largest) * 46)}px`;
    const times = storages.length > 1 ? ` ×${formatCount(storages.length)}` : "";
    return h(
      "tr",
      {
        class: `agv-${first.state} ${selected ? "agv-selected" : ""}`,
        onclick: () => this.store.set("selected", item),
      },
      h(
        "td",
        "agv-ellipsis agv-name-cell",
        button(
          `Select ${first.name}`,
          "agv-strong",
          () => this.store.set("selected", item),
          first.name + times,
        ),
      ),
      h("td", { class: "agv-ellipsis", text: first.slots[0] ?? "", title: first.slots.join("\n") }),
      h("td", "agv-ellipsis agv-muted", moduleRange(storages)),
      h("td", { class: "agv-mono", text: place, title: place }),
      h("td", { class: "agv-mono", text: first.shape, title: first.dtype }),
      h("td", {}, ...stateCell(first)),
      h("td", "agv-right", formatBytes(nbytes), bar),
    );
  }
}

/**
 * @param {SceneStorage} storage
 * @returns {(Node | string)[]}
 */
function stateCell(storage) {
  const { version, seen_version: seen } = storage;
  const saved = version === null ? "" : `v${version}`;
  const versions = seen === null ? saved : `${saved} → v${seen}`;
  const state = { held: "held", released: "released", broken: "failed", stale: "written since" }[
    storage.state
  ];
  return [h("span", "agv-version", versions), ` ${state}`];
}

/**
 * @param {SceneStorage} storage
 * @returns {string}
 */
function stateSortKey(storage) {
  return `${storage.state} ${storage.version ?? ""}`;
}

/**
 * Return a key that is equal for the same tensor of identical blocks.
 *
 * @param {SceneStorage} storage
 * @returns {string}
 */
function foldKey(storage) {
  const module = storage.module.replace(/\d+/g, "#");
  const { name, slots, shape, state, filename, lineno } = storage;
  return [name.replace(/\d+/g, "#"), slots[0], shape, state, filename, lineno, module].join("|");
}

/**
 * @param {SceneStorage[]} storages
 * @returns {string} "h.0–10.attn"
 */
function moduleRange(storages) {
  const modules = [...new Set(storages.map((each) => each.module))].sort(compare);
  const [first, last] = [modules[0], modules[modules.length - 1]];
  if (first === last) return first;
  const [a, b] = [first.split("."), last.split(".")];
  const apart = a.filter((part, at) => part !== b[at]);
  if (apart.length !== 1 || a.length !== b.length) return `${first} – ${last}`;
  return a.map((part, at) => (part === b[at] ? part : `${part}–${b[at]}`)).join(".");
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
