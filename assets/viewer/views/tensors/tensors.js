// @ts-check
/** The saved tensors: their lives, a table of them, and who keeps how much. */

import { makeAdvice } from "./checkpoint_savings.js";
import { axisChoice } from "../../scene/time_axis.js";
import { choice, h } from "../../dom.js";
import { formatBytes, plural } from "../../scene/format.js";
import { icon } from "../../canvas/icons.js";
import { Lifelines } from "./lifelines.js";
import { SavedTable } from "./saved_tensor_table.js";
import { Stacked } from "./stacked_memory.js";
import { storyParts } from "../../shell/details/storage.js";

/** @typedef {import("../../store.js").Store} Store */

/** @type {[glyph: import("../../canvas/icons.js").GlyphName, word: string, hue: string][]} */
const KEY = [
  ["pack", "pack", "agv-saved"],
  ["pencil", "write", "agv-mutation"],
  ["clone", "clone", "agv-recompute"],
  ["check", "unpack", "agv-saved"],
  ["failed", "unpack failed", "agv-mutation"],
  ["release", "release", "agv-muted"],
];

/** The height of a view's head. */
const HEAD = 46;

export class Tensors {
  /**
   * @param {Store} store
   * @param {() => import("../../canvas/theme.js").Palette} palette
   */
  constructor(store, palette) {
    this.store = store;
    this.lifelines = new Lifelines(store, palette);
    this.table = new SavedTable(store);
    this.stacked = new Stacked(store, palette);
    const { summary, storages } = store.scene;
    const held = storages.filter((each) => each.state !== "released");
    const still = held.reduce((sum, each) => sum + each.nbytes, 0);
    const peak = `${formatBytes(summary.peak_nbytes)} at peak`;
    const words = `${plural(storages.length, "storage")} · ${peak} · ${formatBytes(still)} still held`;
    if (!storages.length) {
      const text = "No tensor was saved for backward in this recording.";
      this.element = h("div", {}, h("p", { class: "agv-empty-words", text }));
      return;
    }
    this.element = h(
      "div",
      { class: "agv-tensors" },
      h(
        "section",
        { class: "agv-panel agv-panel-lives" },
        h(
          "div",
          { class: "agv-view-head" },
          h("h3", { text: "Lifelines" }),
          h("span", { class: "agv-muted agv-clamp", text: words }),
          h("span", { class: "agv-end agv-lives-key" }, ...KEY.map(keyEntry)),
          axisChoice(store),
        ),
        this.lifelines.element,
      ),
      this.#tablePanel(),
      this.#memoryPanel(),
    );
    // Few lives need little room.
    this.element.style.setProperty("--agv-rows", `${this.lifelines.rowsHeight + HEAD}px`);
  }

  destroy() {
    this.lifelines.destroy();
    this.stacked.destroy();
  }

  draw() {
    this.lifelines.draw();
    this.stacked.draw();
  }

  /** @returns {HTMLElement} */
  #tablePanel() {
    const body = h("div", { class: "agv-panel-body" }, this.table.element);
    const advice = makeAdvice(this.store);
    const show = (/** @type {string} */ name) => {
      const table = name !== "checkpointing";
      if (table) this.table.fold(name === "fold ×n");
      body.replaceChildren(table ? this.table.element : advice);
    };
    const first = this.table.folded ? "fold ×n" : "all";
    return h(
      "section",
      { class: "agv-panel agv-panel-table" },
      h(
        "div",
        { class: "agv-view-head" },
        h("h3", { text: "Saved tensors" }),
        h("span", { class: "agv-end" }, choice(["fold ×n", "all", "checkpointing"], first, show)),
      ),
      body,
    );
  }

  /** @returns {HTMLElement} */
  #memoryPanel() {
    const story = h("div", { class: "agv-story" });
    const fill = () => {
      const { selected } = this.store;
      story.hidden = selected?.kind !== "storage";
      if (selected?.kind === "storage")
        story.replaceChildren(...storyParts(this.store, selected.index));
    };
    this.store.subscribe((change) => change === "selected" && fill());
    fill();
    const group = (/** @type {string} */ name) =>
      this.stacked.group(/** @type {import("./stacked_memory.js").Grouping} */ (name));
    return h(
      "section",
      { class: "agv-panel agv-panel-memory" },
      h(
        "div",
        { class: "agv-view-head" },
        h("h3", { text: "Saved memory" }),
        h("span", { class: "agv-end" }, choice(["module", "kind", "line"], "module", group)),
      ),
      this.stacked.element,
      story,
    );
  }
}

/**
 * @param {typeof KEY[number]} entry
 * @returns {HTMLElement}
 */
function keyEntry([glyph, word, hue]) {
  return h("span", { class: "agv-inline" }, h("span", { class: hue }, icon(glyph)), word);
}
