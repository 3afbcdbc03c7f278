// @ts-check
/** Each region's forward beside its recomputation, op by op. */

import { WORDS, diffRow, differs, folded, foldedRow } from "./diff.js";
import { h } from "../../dom.js";
import { formatPlace } from "../../scene/format.js";
import { icon } from "../../canvas/icons.js";
import { aboutRegion, besideRuns, findingOf } from "./region.js";

/** @typedef {import("../../types.js").SceneDiffRow} DiffRow */
/** @typedef {import("../../types.js").SceneRegion} Region */
/** @typedef {import("../../store.js").Store} Store */

export class Checkpoint {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    /** @type {HTMLElement[]} rows that differ */
    this.differences = [];
    this.at = -1;
    this.list = h("div", {
      class: "agv-list",
      attrs: { role: "listbox", tabindex: "0", "aria-label": "Checkpoint regions" },
    });
    this.about = h("div", { class: "agv-side-more" });
    this.main = h("div", { class: "agv-main" });
    this.beside = h("aside", { class: "agv-beside", attrs: { "aria-label": "Differences" } });
    this.element = h(
      "div",
      { class: "agv-split agv-split-three" },
      h("aside", { class: "agv-side" }, this.list, this.about),
      this.main,
      this.beside,
    );
    this.list.addEventListener("keydown", (event) => this.#press(event));
    store.subscribe((change) => {
      if (change === "region") this.#fill();
    });
    this.#fill();
  }

  #fill() {
    const { scene, region } = this.store;
    this.list.replaceChildren(
      h("div", { class: "agv-head", text: "Checkpoint regions" }),
      ...scene.regions.map((each) => this.#entry(each)),
    );
    const chosen = scene.regions[region];
    this.at = -1;
    this.differences = [];
    this.beside.hidden = !chosen;
    this.about.hidden = !chosen;
    if (!chosen) {
      this.main.replaceChildren(
        h("p", {
          class: "agv-empty-words",
          text: "Nothing was checkpointed in this recording. torch.utils.checkpoint.checkpoint(function, …) makes a region.",
        }),
      );
      return;
    }
    const rows = scene.diffs.filter((row) => row.region === region);
    const banner = findingOf(this.store, chosen);
    const parts = [banner, this.#head(chosen, rows), this.#diff(rows)];
    this.main.replaceChildren(...parts.filter((part) => part !== null));
    this.about.replaceChildren(...aboutRegion(chosen));
    const beside = besideRuns(this.store, chosen);
    this.beside.replaceChildren(...beside);
    this.beside.hidden = !beside.length;
    this.main.scrollTop = 0;
  }

  /**
   * @param {Region} region
   * @returns {HTMLElement}
   */
  #entry(region) {
    const selected = region.index === this.store.region;
    const rows = this.store.scene.diffs.filter((row) => row.region === region.index);
    const failed = region.outcome === "error" || rows.some(differs);
    const label = region.module || region.function;
    const row = h(
      "div",
      {
        class: `agv-row ${selected ? "agv-on" : ""}`,
        attrs: { role: "option", "aria-selected": selected },
        onclick: () => this.store.showRegion(region.index),
      },
      h("span", {
        class: "agv-row-label",
        text: label,
        title: `${region.function} ${formatPlace(region.filename, region.lineno)}`,
      }),
      failed && h("span", { class: "agv-mutation", title: "differs" }, icon("failed")),
      h("span", { class: "agv-pill agv-recompute" }, icon("checkpoint"), String(region.recomputes)),
    );
    row.style.paddingLeft = `${12 + 12 * this.#depth(region)}px`;
    return row;
  }

  /**
   * @param {Region} region
   * @returns {number} how many regions are around it
   */
  #depth(region) {
    const { regions } = this.store.scene;
    let depth = 0;
    for (let at = region.parent; at >= 0; at = regions[at].parent) depth += 1;
    return depth;
  }

  /** @param {KeyboardEvent} event */
  #press(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const next = this.store.region + step;
    if (this.store.scene.regions[next]) this.store.showRegion(next);
  }

  /**
   * @param {Region} region
   * @param {DiffRow[]} rows
   * @returns {HTMLElement}
   */
  #head(region, rows) {
    const counts = Object.entries(WORDS)
      .map(([status, [, word]]) => [rows.filter((row) => row.status === status).length, word])
      .filter(([count]) => count)
      .map(([count, word]) => `${count} ${word}`);
    return h(
      "div",
      { class: "agv-view-head" },
      h("h3", { text: region.module || region.function }),
      h("span", { class: "agv-muted", text: counts.join(" · ") }),
      rows.some(differs) &&
        h("span", { class: "agv-end agv-muted" }, "next ", h("kbd", { text: "n" })),
    );
  }

  /**
   * @param {DiffRow[]} rows
   * @returns {HTMLElement}
   */
  #diff(rows) {
    if (!rows.length) {
      const text =
        "This region has not been recomputed, so there is nothing to compare with its forward.";
      return h("p", { class: "agv-empty-words", text });
    }
    const head = ["compare", "forward", "", "line", "recompute", "", "line"].map((text) =>
      h("th", { text }),
    );
    const body = h("tbody");
    let first = true;
    for (const part of folded(rows)) {
      const row = part[0];
      const element = part.length > 1 ? foldedRow(part) : diffRow(row, first);
      if (differs(row)) {
        this.differences.push(element);
        first = false;
      }
      body.append(element);
    }
    const top = h("thead", {}, h("tr", {}, ...head));
    return h("div", { class: "agv-scroll" }, h("table", { class: "agv-diff" }, top, body));
  }

  /** Go to the next row that differs. */
  next() {
    if (!this.differences.length) return;
    this.differences[this.at]?.classList.remove("agv-current");
    this.at = (this.at + 1) % this.differences.length;
    this.differences[this.at].classList.add("agv-current");
    this.differences[this.at].scrollIntoView({ block: "center" });
  }
}
