// @ts-check
/** The table of saved storages, sortable, with identical blocks folded. */

import { button, h } from "../../dom.js";
import {
  formatBytes,
  formatCount,
  formatShape,
  placeOf,
} from "../../scene/format_numbers_and_names.js";
import { icon } from "../../canvas/draw_icon.js";
import { COLUMNS, moduleRange, namesOf } from "./storage_rows.js";

/** @typedef {import("../../types.js").SceneStorage} SceneStorage */
/** @typedef {import("./storage_rows.js").Row} Row */
/** @typedef {import("./storage_rows.js").Column} Column */

const PAGE_ROWS = 200;

export class SavedTensorTable {
  /**
   * @param {import("../../shared_view_state.js").Store} store
   * @param {import("./storage_rows.js").StorageRows} source of the rows
   */
  constructor(store, source) {
    this.store = store;
    this.source = source;
    this.shown = PAGE_ROWS;
    this.element = h("div", "agv-scroll agv-saved-table");
    store.subscribe(["selected"], () => this.fill());
    source.listeners.push(() => this.fill());
    this.fill();
  }

  fill() {
    const { rows } = this.source;
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

  /**
   * @param {string} name
   * @returns {HTMLElement}
   */
  #head(name) {
    const column = /** @type {Column} */ (name);
    const { descending } = this.source;
    const active = column === this.source.column;
    const sort = () =>
      this.source.change({ column, descending: active ? !descending : column === "bytes" });
    const order = descending ? "descending" : "ascending";
    const direction = active && !descending ? "agv-ascending" : "";
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
    const place = placeOf(first);
    const name = namesOf(this.store.scene, storages);
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
        { class: "agv-ellipsis agv-name-cell", title: first.name + times },
        button(
          `Select ${name}`,
          "agv-strong",
          () => this.store.set("selected", item),
          name + times,
        ),
      ),
      h("td", { class: "agv-ellipsis", text: first.slots[0] ?? "", title: first.slots.join("\n") }),
      h("td", "agv-ellipsis agv-muted", moduleRange(storages)),
      h("td", { class: "agv-mono", text: place, title: place }),
      h("td", { class: "agv-mono", text: formatShape(first), title: first.dtype }),
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
