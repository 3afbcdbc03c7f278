// @ts-check
/** The tensors view: lifelines or a table of saved tensors, and the story of the selected one. */

import { icon } from "../../canvas/draw_icon.js";
import { choice, h } from "../../dom.js";
import { columnOf } from "../../payload/lazy_rows.js";
import {
  cutText,
  formatBytes,
  formatCount,
  plural,
  placeOf,
} from "../../scene/format_numbers_and_names.js";
import { savedSums, summaryOf } from "../../scene/sum_and_describe_saved_bytes.js";
import { splitter } from "../../shell/panel_splitter.js";
import { storageDetails } from "../../shell/details/storage.js";
import { Lifelines } from "./lifelines.js";
import { SavedTensorTable } from "./saved_tensor_table.js";
import { StorageRows } from "./storage_rows.js";

/** @typedef {import("../../shared_view_state.js").Store} Store */

/** @type {[glyph: import("../../canvas/icon_paths.js").GlyphName, label: string, color: string][]} */
const LEGEND = [
  ["pack", "saved", "agv-saved"],
  ["pack", "recomputed", "agv-recompute"],
  ["pencil", "written", "agv-muted"],
  ["clone", "cloned", "agv-recompute"],
  ["check", "used", "agv-saved"],
  ["used", "used, released", "agv-saved"],
  ["failed", "use failed", "agv-mutation"],
  ["release", "released", "agv-muted"],
];

export class Tensors {
  /**
   * @param {Store} store
   * @param {() => import("../../canvas/theme.js").Palette} palette
   */
  constructor(store, palette) {
    this.store = store;
    this.rows = new StorageRows(store);
    this.lifelines = new Lifelines(store, palette, this.rows);
    this.table = new SavedTensorTable(store, this.rows);
    const { summary, storages } = store.scene;
    this.cut = cutText(storages.length, summary.storage_rows);
    if (!storages.length) {
      const elsewhere = summary.offloaded_nbytes
        ? `Hooks copied ${formatBytes(summary.offloaded_nbytes)} of saved tensors elsewhere; none is held in place.`
        : "";
      const text = elsewhere || "No tensor was saved for backward in this recording.";
      this.element = h("div", {}, h("p", "agv-empty-text", text));
      return;
    }
    this.title = h("h3");
    this.totals = h("span", "agv-muted agv-clamp agv-end");
    this.rows.listeners.push(() => this.#name());
    this.#name();
    const fold = (/** @type {string} */ name) => this.rows.change({ folded: name === "fold ×n" });
    const first = this.rows.folded ? "fold ×n" : "all";
    const axis = this.lifelines.window.makeAxisSwitch();
    const { storage_events: events } = store.scene;
    /** @type {Record<string, boolean>} */
    const rare = {
      recomputed: summary.recomputed_nbytes > 0,
      cloned: Array.from(columnOf(events, "nbytes")).some(Boolean), // those of clones
      "use failed": Array.from(columnOf(events, "ok")).includes(0),
    };
    const drawn = LEGEND.filter(([, label]) => rare[label] !== false);
    const legend = h("span", "agv-lifelines-legend", ...drawn.map(legendEntry));
    const body = h("div", { class: "agv-panel-body", attrs: { tabindex: 0 } }, this.table.element);
    const show = (/** @type {string} */ form) => {
      const isTable = form === "table";
      body.hidden = !isTable;
      for (const part of [this.lifelines.element, legend, axis]) part.hidden = isTable;
      // The table marks the column that it is sorted by.
      this.rows.change(isTable ? { column: "bytes", descending: true } : { chosen: false });
    };
    show("lifelines");
    this.element = h(
      "div",
      "agv-tensors",
      h(
        "section",
        "agv-panel",
        h(
          "div",
          "agv-view-head agv-tensors-title",
          this.title,
          this.totals,
          h("span", "agv-muted", this.cut),
        ),
        h(
          "div",
          "agv-view-head agv-tensors-tools",
          legend,
          h("span", "agv-end", this.lifelines.range),
          axis,
          choice(["fold ×n", "all"], first, fold),
          choice(["lifelines", "table"], "lifelines", show),
        ),
        this.lifelines.element,
        body,
      ),
      this.#storyPanel(),
    );
  }

  /** Write which tensor was written after its save, or which fill most of the memory; the sums. */
  #name() {
    if (!this.title || !this.totals) return;
    this.title.textContent = this.#harm() || this.rows.fillers();
    const summary = summaryOf(this.store.scene, this.store.step);
    const totals = [plural(summary.storages, "storage"), ...savedSums(summary)];
    this.totals.title = totals.join(" · ");
    this.totals.textContent = totals.filter((text) => !text.endsWith(" released")).join(" · ");
  }

  /** @returns {string} what was written after it was saved, "" if backward read all as saved */
  #harm() {
    const { storageEvents } = this.store.sceneIndex;
    const victims = new Set();
    for (const { victim_file: filename, victim_line: lineno } of this.store.scene.findings) {
      victims.add(placeOf({ filename, lineno }));
    }
    const firsts = this.rows.rows.map(({ storages }) => storages[0]);
    const harmed = ["broken", "stale"].flatMap((state) => firsts.filter((s) => s.state === state));
    for (const { name, index, version, seen_version: seen } of harmed) {
      const write = storageEvents[index].find(({ kind, ok }) => kind === "written" && !ok);
      if (!write) continue;
      const at = placeOf(write);
      // That of a finding; or else the last save, the first that backward needs.
      const saves = storageEvents[index].filter(
        ({ kind, time_ns: time }) => kind === "saved" && time <= write.time_ns,
      );
      const save = saves.find((each) => victims.has(placeOf(each))) ?? saves.at(-1);
      const by = save && placeOf(save);
      const saved = by ? `${by} saved it` : "it was saved";
      const versions = version === null || seen === null ? "" : `: v${version} → v${seen}`;
      return `${name} was written${at && ` at ${at}`} after ${saved}${versions}.`;
    }
    return "";
  }

  destroy() {
    this.lifelines.destroy();
  }

  draw() {
    this.lifelines.draw();
  }

  /** @returns {HTMLElement} what happened to the selected tensor, hidden without one */
  #storyPanel() {
    const details = h("div", { class: "agv-panel-details", attrs: { tabindex: 0 } });
    const panel = h("section", "agv-panel agv-panel-side agv-panel-story", details);
    panel.append(splitter("right", () => panel));
    const fill = () => {
      const { selected } = this.store;
      panel.hidden = selected?.kind !== "storage";
      if (selected?.kind === "storage") {
        const row = this.rows.rows.find((each) => indexIn(each, selected.index) >= 0);
        const count = row?.storages.length ?? 1;
        const parts = storageDetails(this.store, selected.index);
        if (row && count > 1) {
          const text = `${indexIn(row, selected.index) + 1} of ${formatCount(count)} in this row`;
          parts.splice(1, 0, h("p", "agv-text agv-muted", text));
        }
        details.replaceChildren(...parts.filter((part) => part !== false));
      }
    };
    this.store.subscribe(["selected"], fill);
    fill();
    return panel;
  }
}

/**
 * @param {import("./storage_rows.js").Row} row
 * @param {number} storage
 * @returns {number} its place among those of a row, -1 if it is not there
 */
const indexIn = ({ storages }, storage) => storages.findIndex(({ index }) => index === storage);

/**
 * @param {typeof LEGEND[number]} entry
 * @returns {HTMLElement}
 */
function legendEntry([glyph, label, color]) {
  return h("span", "agv-inline", h("span", color, icon(glyph)), label);
}

/** Share of the peak that the rows of the title fill, of which it names so many. */
const MOST = 0.6;
const NAMED = 2;
