// @ts-check
/** The profile of a time range as a table and as totals. */

import { choice, h, propertyList, section } from "../../dom.js";
import { cutText, formatBytes, formatCount, formatDuration } from "../../scene/format.js";
import { profileRange } from "../../scene/range_profile.js";
import { heldBytesAt } from "../../scene/saved_bytes.js";
import { olderSteps } from "../../scene/time_axis.js";
import { betweenOps, PHASE_MEANINGS, phaseTimes, timeSentence } from "../../scene/phase_times.js";

/** @typedef {import("../../scene/range_profile.js").TimeRange} TimeRange */
/** @typedef {import("../../scene/range_profile.js").ProfileRow} ProfileRow */
/** @typedef {import("../../scene/range_profile.js").Grouping} Grouping */

const MAX_ROWS = 60;
const PART = "agv-phase-part";

export class RangeProfilePanel {
  /** @param {import("../../store.js").Store} store */
  constructor(store) {
    this.store = store;
    /** @type {TimeRange | null} */
    this.range = null;
    /** @type {Grouping} */
    this.grouping = "node";
    this.table = h("div", { class: "agv-panel-body agv-scroll", attrs: { tabindex: 0 } });
    this.totals = h("div", { class: "agv-panel-details", attrs: { tabindex: 0 } });
    this.rangeText = h("span", "agv-muted");
    const group = (/** @type {string} */ name) => {
      this.grouping = /** @type {Grouping} */ (name);
      this.fill(this.range, this.step);
    };
    /** @type {number | undefined} */
    this.step = undefined;
    /** The answer to where the time goes, which the view shows on top. */
    this.sentence = h("p", { class: "agv-sentence", attrs: { "aria-live": "polite" } });
    this.elements = [
      h(
        "section",
        "agv-panel agv-panel-profile",
        h(
          "div",
          "agv-view-head",
          h("h3", "", "Profile"),
          this.rangeText,
          h("span", "agv-end", choice(["node", "module", "line"], "node", group)),
        ),
        this.table,
      ),
      h(
        "section",
        "agv-panel agv-panel-side agv-panel-selection",
        h("div", "agv-view-head", h("h3", "", "Where the time goes")),
        this.totals,
      ),
    ];
  }

  /**
   * @param {TimeRange | null} range null profiles the recording
   * @param {number} [step] index of the step that is the range
   */
  fill(range, step) {
    this.range = range;
    this.step = step;
    const { sceneIndex } = this.store;
    const [start, end] = range ?? [0, sceneIndex.end];
    const times = phaseTimes(sceneIndex, [start, end], range ? step : -1);
    const found = profileRange(sceneIndex, [start, end], this.grouping);
    const rows = [...found, ...restRows(times, found)].sort((a, b) => b.time - a.time);
    const rangeText = `${formatDuration(start)} – ${formatDuration(end)}`;
    const cut = cutText(Math.min(MAX_ROWS, rows.length), rows.length, "longest");
    const what = range ? (step === undefined ? rangeText : "this step") : "whole recording";
    // Of a node that failed, the end is not known: its time may contain idle time.
    times.active = Math.max(
      times.active,
      found.reduce((sum, row) => sum + row.time, 0),
    );
    this.sentence.textContent = timeSentence(times);
    const head = [
      ...[this.grouping, "phase", "module", "count", "self time", "share of active"],
      "bytes released",
    ].map((text, at) => h("th", at > 2 && at !== 5 ? "agv-right" : "", text));
    const longest = Math.max(1, ...rows.map((row) => row.time));
    this.rangeText.textContent = [
      what,
      `rows add up to ${formatDuration(times.active)} active`,
      cut,
    ]
      .filter(Boolean)
      .join(" · ");
    const body = rows.slice(0, MAX_ROWS).map((row) => this.#row(row, times.active, longest));
    this.table.replaceChildren(
      h(
        "table",
        "agv-table agv-table-sorted",
        h("thead", {}, h("tr", {}, ...head)),
        h("tbody", {}, ...body),
      ),
    );
    this.totals.replaceChildren(...this.#totals([start, end], times, found));
  }

  /**
   * @param {ProfileRow} row
   * @param {number} duration of the range, without idle intervals, or the time of all rows
   * @param {number} longest time of all rows
   * @returns {HTMLElement}
   */
  #row(row, duration, longest) {
    const bar = h("span", `agv-profile-bar agv-profile-bar-${row.phase}`);
    bar.style.setProperty("--share", String(row.time / longest));
    const modules = [...row.modules];
    const where = modules.length > 2 ? `${modules[0]} +${modules.length - 1}` : modules.join(", ");
    const show = () => row.node >= 0 && this.store.reveal({ kind: "node", index: row.node });
    const percent = Math.round((100 * row.time) / (duration || 1));
    const share = percent || !row.time ? `${percent} %` : "<1 %";
    return h(
      "tr",
      { onclick: show },
      h("td", {
        class: row.count ? "agv-strong agv-ellipsis" : "agv-ellipsis",
        text: row.label,
        title: row.label,
      }),
      h("td", `agv-phase-${row.phase}`, row.phase),
      h("td", {
        class: "agv-muted agv-ellipsis",
        text: where,
        title: modules.slice(0, 20).join("\n"),
      }),
      h("td", "agv-right", row.count ? formatCount(row.count) : ""),
      h("td", "agv-right", formatDuration(row.time)),
      h("td", "agv-nowrap", bar, ` ${share}`),
      h("td", "agv-right", row.released ? formatBytes(row.released) : ""),
    );
  }

  /**
   * @param {TimeRange} range
   * @param {import("../../scene/phase_times.js").PhaseTimes} times
   * @param {ProfileRow[]} rows
   * @returns {HTMLElement[]} the phases with their parts, which add up to the duration
   */
  #totals([start, end], times, rows) {
    const { scene } = this.store;
    const [before, after] = [heldBytesAt(scene, start), heldBytesAt(scene, end)];
    const released = rows.reduce((sum, row) => sum + row.released, 0);
    const most = Math.max(1, ...times.phases.map(({ total }) => total));
    const line = (
      /** @type {string} */ name,
      /** @type {number} */ ns,
      /** @type {string} */ kind,
      /** @type {string} */ part = "",
    ) => {
      if (!ns) return null;
      const meaning = PHASE_MEANINGS.find(([word]) => word === name)?.[1] ?? "";
      const bar = h("span", `agv-profile-bar agv-profile-bar-${kind}`);
      bar.style.setProperty("--share", String(ns / most));
      return h(
        "tr",
        { class: part, title: meaning },
        h("td", part ? "agv-muted" : `agv-strong agv-phase-${kind}`, name),
        h("td", part ? "agv-right agv-muted" : "agv-right agv-strong", formatDuration(ns)),
        h("td", {}, bar),
      );
    };
    const lines = times.phases.flatMap((phase) => {
      const { name, total, ops, recomputed, compiled } = phase;
      return [
        line(name, total, name),
        line(name === "backward" ? "nodes" : "ops", ops ?? 0, name, PART),
        line("recomputation", recomputed, "recompute", PART),
        line("compiling", compiled, "compile", PART),
        line("between ops", betweenOps(phase), "between", PART),
      ];
    });
    const all = h(
      "tr",
      "agv-phase-total",
      h("td", "", "active"),
      h("td", "agv-right", formatDuration(times.active)),
      h("td"),
    );
    const notKept = Math.max(0, Math.min(olderSteps(scene), end) - start);
    const waited = times.idle - notKept;
    const idle = [
      notKept > 0 && `of it ${formatDuration(notKept)} in older steps that were not kept`,
      waited > 0 && `of it ${formatDuration(waited)} idle: nothing ran`,
    ];
    return [
      h("table", "agv-phases", h("tbody", {}, ...lines, all)),
      section(
        "Of this time",
        "",
        propertyList([
          ["duration", [formatDuration(end - start), ...idle].filter(Boolean).join(", ")],
          ["saved tensors", `${formatBytes(before)} → ${formatBytes(after)} held`],
          ["released", formatBytes(released)],
        ]),
      ),
      section(
        "What counts",
        "",
        ...PHASE_MEANINGS.map(([word, meaning]) =>
          h("p", "agv-text agv-muted", h("b", "", word), ` ${meaning}`),
        ),
      ),
    ];
  }
}

/**
 * Return the rows of what is not the time of a node: the table adds up to the active time.
 *
 * @param {import("../../scene/phase_times.js").PhaseTimes} times
 * @param {ProfileRow[]} rows of nodes
 * @returns {ProfileRow[]}
 */
function restRows({ phases }, rows) {
  /** @type {Record<string, string[]>} */
  const own = { backward: ["backward", "accumulate", "recompute"] };
  return phases.flatMap((phase) => {
    const { name, total, ops, compiled } = phase;
    const counted = rows
      .filter((row) => (own[name] ?? [name]).includes(row.phase))
      .reduce((sum, row) => sum + row.time, 0);
    const rest = total - counted - compiled;
    const between = Math.min(Math.max(0, rest), ops === null ? rest : betweenOps(phase));
    const other = rest - between;
    const row = (/** @type {string} */ label, /** @type {number} */ time) => ({
      ...{ label, phase: /** @type {any} */ (name), modules: new Set(), count: 0, released: 0 },
      ...{ time, node: -1 },
    });
    const some = ops === null ? "other ops, and between ops" : "between ops";
    return [
      row(name === "backward" ? "between nodes" : some, between),
      row("ops without a node", other),
    ].filter(({ time }) => time > total / 1e4);
  });
}
