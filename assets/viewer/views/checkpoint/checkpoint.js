// @ts-check
/** Each checkpoint region's forward next to its recomputation, op by op. */

import { STATUS_LABELS, diffRow, differs, foldRows, foldedRow } from "./diff_table_rows.js";
import { SCROLLS, h, listHead, onArrows } from "../../dom.js";
import { formatBytes, placeOf } from "../../scene/format_numbers_and_names.js";
import { icon } from "../../canvas/draw_icon.js";
import { allRegions, sentenceOfPeaks, sentenceOfRegions } from "./cost_and_gain_of_all_regions.js";
import { describeRegion, regionDiffs, regionFinding } from "./region_panels.js";
import { sentenceOfRegion } from "../compare/sentences_on_difference.js";
import { makeHeldPicture } from "./bytes_held_with_and_without_checkpoints.js";
import { inStep } from "../../scene/step_of_time_or_node.js";
import { phaseTimes } from "../../scene/phase_times.js";
import { summaryOf } from "../../scene/sum_and_describe_saved_bytes.js";
import { sideBySide } from "./source_lines_side_by_side.js";

/** @typedef {import("../../types.js").SceneDiffRow} DiffRow */
/** @typedef {import("../../types.js").SceneRegion} Region */
/** @typedef {import("../../shared_view_state.js").Store} Store */

/** Above the regions of a step. */
const HEADING = { class: "agv-row agv-muted", attrs: { role: "presentation" } };

/** @param {Region} region */
const labelOf = (region) => region.module || region.function;

export class Checkpoint {
  /**
   * @param {Store} store
   * @param {() => import("../../canvas/theme.js").Palette} palette
   */
  constructor(store, palette) {
    this.store = store;
    this.held = makeHeldPicture(store, palette);
    /** @type {Region[]} of the step that is shown */
    this.regions = [];
    /** @type {HTMLElement[]} rows that differ */
    this.differences = [];
    /** Index of the difference that `next` went to last. */
    this.current = -1;
    this.list = h("div", {
      class: "agv-list",
      attrs: { role: "listbox", tabindex: "0", "aria-label": "Checkpoint regions" },
    });
    this.description = h("div", { class: "agv-side-details", attrs: { tabindex: 0 } });
    this.main = h("div", { class: "agv-main", attrs: { tabindex: 0 } });
    this.diffs = h("aside", {
      class: "agv-region-diffs",
      attrs: { tabindex: 0, "aria-label": "Differences" },
    });
    const title = listHead("Checkpoint regions");
    this.side = h("aside", "agv-side", title, this.list, this.description);
    this.element = h("div", "agv-split agv-split-three", this.side, this.main, this.diffs);
    onArrows(this.list, (step) => {
      const next = store.region + step;
      if (this.regions[next - this.regions[0]?.index]) store.set("region", next);
    });
    store.subscribe(["region", "step"], () => this.#fill());
    this.#fill();
  }

  #fill() {
    const { scene, region, step } = this.store;
    this.regions = scene.regions.filter((each) => inStep(step, () => each.step));
    /** @type {Map<string, Region[]>} */
    const calls = new Map();
    const nameOf = (/** @type {Region} */ each) => `${each.step} ${labelOf(each)}`;
    for (const each of this.regions) {
      calls.set(nameOf(each), [...(calls.get(nameOf(each)) ?? []), each]);
    }
    const isSeveral = this.regions.some((each) => each.step !== this.regions[0].step);
    this.list.replaceChildren(
      ...this.regions.flatMap((each, at) => {
        const entry = this.#entry(each, calls.get(nameOf(each)) ?? []);
        const isFirst = isSeveral && each.step !== this.regions[at - 1]?.step;
        return isFirst
          ? [h("div", HEADING, `step ${scene.steps[each.step]?.number}`), entry]
          : [entry];
      }),
    );
    this.side.hidden = !this.regions.length;
    const chosen = this.regions.find(({ index }) => index === region);
    this.current = -1;
    this.differences = [];
    this.diffs.hidden = !chosen;
    this.description.hidden = !chosen;
    if (!chosen) {
      this.main.replaceChildren(h("p", "agv-empty-text", "Nothing was checkpointed."));
      return;
    }
    const rows = scene.diffs.filter((row) => row.region === region);
    const changes = scene.changes.filter((change) => change.region === region);
    const sources = sideBySide(this.store, rows, changes);
    const banner = regionFinding(this.store, chosen, !sources);
    // Of several steps, that of the region: their peaks are not summed either.
    const own = this.regions.filter((each) => each.step === chosen.step);
    const shown = isSeveral ? chosen.step : step;
    const all = allRegions(this.store, own);
    const { start_ns = 0, end_ns = this.store.sceneIndex.end } = scene.steps[shown] ?? {};
    const { active } = phaseTimes(this.store.sceneIndex, [start_ns, end_ns], shown);
    const sum = banner ? "" : sentenceOfRegions(own, active);
    const whole = sum && isSeveral ? `In step ${scene.steps[shown]?.number}, ${sum}` : sum;
    const peaks = whole && sentenceOfPeaks(summaryOf(scene, shown));
    const top = whole ? h("p", "agv-difference", peaks || whole) : null;
    const style = whole ? "agv-difference-more" : "agv-difference";
    const sentence = rows.length ? h("p", style, sentenceOfRegion(rows)) : null;
    const table = this.#diffTable(rows);
    const details = [sentence, sources, this.#head(chosen, rows), table];
    // Without a difference, what all regions cost is the news.
    const sums = peaks ? h("p", "agv-difference-more", whole) : this.#peak();
    const parts = whole
      ? [top, sums, this.held?.element ?? null, all, ...details]
      : [banner, ...details, all];
    this.main.replaceChildren(...parts.filter((part) => part !== null));
    this.description.replaceChildren(...describeRegion(chosen));
    const diffs = regionDiffs(this.store, chosen);
    this.diffs.replaceChildren(...diffs);
    this.diffs.hidden = !diffs.length;
    this.main.scrollTop = 0;
    this.element.scrollTop = 0;
    requestAnimationFrame(() => {
      const row = /** @type {HTMLElement | null} */ (this.list.querySelector(".agv-selected"));
      if (row) this.list.scrollTop = row.offsetTop - this.list.offsetTop - row.offsetHeight;
    });
  }

  /** @returns {HTMLElement} what the step holds, which the recomputed bytes do not add up to */
  #peak() {
    const summary = summaryOf(this.store.scene, this.store.step);
    const held = formatBytes(summary.peak_nbytes + summary.older_nbytes);
    return h(
      "p",
      "agv-difference-more",
      `Held at the peak, with what is recomputed then: ${held}.`,
    );
  }

  /**
   * @param {Region} region
   * @param {Region[]} alike regions of the same module
   * @returns {HTMLElement}
   */
  #entry(region, alike) {
    const selected = region.index === this.store.region;
    const rows = this.store.scene.diffs.filter((row) => row.region === region.index);
    const failed = region.outcome === "error" || rows.some(differs);
    const row = h(
      "div",
      {
        class: `agv-row ${selected ? "agv-selected" : ""}`,
        attrs: { role: "option", "aria-selected": selected },
        onclick: () => this.store.set("region", region.index),
      },
      h("span", {
        class: "agv-row-label",
        text: labelOf(region),
        title: `${region.function} ${placeOf(region)}`,
      }),
      alike.length > 1 && h("span", "agv-muted", `call ${alike.indexOf(region) + 1}`),
      failed && h("span", { class: "agv-mutation", title: "differs" }, icon("failed")),
      h("span", "agv-pill agv-recompute", icon("checkpoint"), String(region.recomputes)),
    );
    row.style.paddingLeft = `${12 + 12 * this.#depth(region)}px`;
    return row;
  }

  /**
   * @param {Region} region
   * @returns {number} number of regions around it
   */
  #depth(region) {
    const { regions } = this.store.scene;
    let depth = 0;
    for (let at = region.parent; at >= 0; at = regions[at].parent) depth += 1;
    return depth;
  }

  /**
   * @param {Region} region
   * @param {DiffRow[]} rows
   * @returns {HTMLElement}
   */
  #head(region, rows) {
    const counts = Object.entries(STATUS_LABELS)
      .map(([status, [, label]]) => [rows.filter((row) => row.status === status).length, label])
      .filter(([count]) => count)
      .map(([count, label]) => `${count} ${label}`);
    return h(
      "div",
      "agv-view-head",
      h("h3", "", region.module || region.function),
      h("span", "agv-muted", counts.join(" · ")),
      rows.some(differs) && h("span", "agv-end agv-muted", "next ", h("kbd", "", "n")),
    );
  }

  /**
   * @param {DiffRow[]} rows
   * @returns {HTMLElement}
   */
  #diffTable(rows) {
    if (!rows.length) {
      return h("p", "agv-empty-text", "This region has not been recomputed.");
    }
    const head = ["compare", "forward", "shape", "line", "recompute", "shape", "line"].map((text) =>
      h("th", "", text),
    );
    const body = h("tbody");
    let first = true;
    for (const part of foldRows(rows)) {
      const row = part[0];
      const element = part.length > 1 ? foldedRow(part) : diffRow(row, first);
      if (differs(row)) {
        this.differences.push(element);
        first = false;
      }
      body.append(element);
    }
    const top = h("thead", {}, h("tr", {}, ...head));
    return h("div", SCROLLS, h("table", "agv-diff", top, body));
  }

  /** Scroll to the next row that differs. */
  next() {
    if (!this.differences.length) return;
    this.differences[this.current]?.classList.remove("agv-current");
    this.current = (this.current + 1) % this.differences.length;
    this.differences[this.current].classList.add("agv-current");
    this.differences[this.current].scrollIntoView({ block: "center" });
  }
}
