// @ts-check
/** The profile of a time range as a table and as totals. */

import { choice, h, propertyList } from "../../dom.js";
import { cutText, formatBytes, formatCount, formatDuration } from "../../scene/format.js";
import { profileRange } from "../../scene/range_profile.js";
import { heldBytesAt } from "../../scene/saved_bytes.js";
import { idleTimes, overlapOf } from "../../scene/time_axis.js";

/** @typedef {import("../../scene/range_profile.js").TimeRange} TimeRange */
/** @typedef {import("../../scene/range_profile.js").ProfileRow} ProfileRow */
/** @typedef {import("../../scene/range_profile.js").Grouping} Grouping */

const MAX_ROWS = 60;

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
      this.fill(this.range);
    };
    this.totalsTitle = h("h3");
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
        h("div", "agv-view-head", this.totalsTitle),
        this.totals,
      ),
    ];
  }

  /** @param {TimeRange | null} range null profiles the recording */
  fill(range) {
    this.range = range;
    const { sceneIndex } = this.store;
    const [start, end] = range ?? [0, sceneIndex.end];
    const rows = profileRange(sceneIndex, [start, end], this.grouping);
    const rangeText = `${formatDuration(start)} – ${formatDuration(end)}`;
    const cut = cutText(Math.min(MAX_ROWS, rows.length), rows.length, "longest");
    this.totalsTitle.textContent = range ? "Selected time" : "Whole recording";
    const head = [
      ...[this.grouping, "phase", "module", "count", "self time", "share of active"],
      "bytes released",
    ].map((text, at) => h("th", at > 2 && at !== 5 ? "agv-right" : "", text));
    const longest = Math.max(1, ...rows.map((row) => row.time));
    const duration = end - start;
    const known = rows.reduce((sum, row) => sum + row.time, 0);
    const busy = Math.max(known, duration - overlapOf(idleTimes(sceneIndex.scene), start, end));
    const active = busy < duration ? `${formatDuration(busy)} active` : "";
    this.rangeText.textContent = [range ? rangeText : "whole recording", active, cut]
      .filter(Boolean)
      .join(" · ");
    const body = rows.slice(0, MAX_ROWS).map((row) => this.#row(row, busy, longest));
    this.table.replaceChildren(
      h(
        "table",
        "agv-table agv-table-sorted",
        h("thead", {}, h("tr", {}, ...head)),
        h("tbody", {}, ...body),
      ),
    );
    this.totals.replaceChildren(propertyList(this.#totals([start, end], rows, busy)));
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
      h("td", { class: "agv-strong agv-ellipsis", text: row.label, title: row.label }),
      h("td", `agv-phase-${row.phase}`, row.phase),
      h("td", {
        class: "agv-muted agv-ellipsis",
        text: where,
        title: modules.slice(0, 20).join("\n"),
      }),
      h("td", "agv-right", formatCount(row.count)),
      h("td", "agv-right", formatDuration(row.time)),
      h("td", "agv-nowrap", bar, ` ${share}`),
      h("td", "agv-right", row.released ? formatBytes(row.released) : ""),
    );
  }

  /**
   * @param {TimeRange} range
   * @param {ProfileRow[]} rows
   * @param {number} busy time without idle intervals
   * @returns {[string, string][]}
   */
  #totals([start, end], rows, busy) {
    const { scene } = this.store;
    const ofPhase = (/** @type {string} */ phase) => {
      const some = rows.filter((row) => row.phase === phase);
      const count = some.reduce((sum, row) => sum + row.count, 0);
      const time = some.reduce((sum, row) => sum + row.time, 0);
      return count ? `${formatDuration(time)} · ${formatCount(count)}` : "none";
    };
    const ifAny = (/** @type {string} */ text) => (text === "none" ? "" : text);
    const between = busy - rows.reduce((sum, row) => sum + row.time, 0);
    const idle = end - start - busy;
    const [before, after] = [heldBytesAt(scene, start), heldBytesAt(scene, end)];
    const released = rows.reduce((sum, row) => sum + row.released, 0);
    return [
      ["duration", formatDuration(end - start)],
      ["forward ops", ofPhase("forward")],
      ["compiling", ifAny(ofPhase("compile"))],
      ["backward nodes", ofPhase("backward")],
      ["recomputed", ofPhase("recompute")],
      ["gradients", ofPhase("accumulate")],
      ["optimizer", ofPhase("optimizer")],
      ["between ops", between > 0 ? formatDuration(between) : ""],
      ["idle", idle > 0 ? formatDuration(idle) : ""],
      ["held", `${formatBytes(before)} → ${formatBytes(after)}`],
      ["released", formatBytes(released)],
    ];
  }
}
