// @ts-check
/** Each region's forward beside its recomputation, op by op. */

import { WORDS, diffRow, differs, folded, foldedRow } from "./diff.js";
import { facts, h, section } from "./dom.js";
import { formatPlace, plural } from "./format.js";
import { icon } from "./icons.js";
import { surroundings } from "./surroundings.js";

/** @typedef {import("./types.js").SceneDiffRow} DiffRow */
/** @typedef {import("./types.js").SceneRegion} Region */
/** @typedef {import("./store.js").Store} Store */

const OUTCOMES = /** @type {Record<string, string>} */ ({
  completed: "completed",
  early_stop: "stopped early: backward had all it needed",
  error: "ended in an error",
});

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
    this.main = h("div", { class: "agv-main" });
    this.element = h(
      "div",
      { class: "agv-split" },
      h("aside", { class: "agv-side" }, this.list),
      this.main,
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
    const changes = scene.changes.filter((change) => change.region === region);
    this.main.replaceChildren(
      this.#head(chosen, rows),
      this.#diff(rows),
      ...surroundings(changes),
      aboutRegion(chosen),
    );
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

/**
 * @param {Region} region
 * @returns {HTMLElement}
 */
function aboutRegion(region) {
  const place = formatPlace(region.filename, region.lineno);
  return section(
    "Region",
    "",
    facts([
      ["function", h("code", { text: region.function })],
      ["entered", place && h("code", { text: place })],
      ["variant", region.reentrant ? "reentrant" : "non-reentrant"],
      ["early stop", region.early_stop ? "on" : "off"],
      ["options", region.options && h("code", { text: region.options })],
      ["saves", plural(region.saved, "tensor")],
      ["recomputed", `${region.recomputes}×`],
      ["last one", OUTCOMES[region.outcome] ?? region.outcome],
    ]),
  );
}
