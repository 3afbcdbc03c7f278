// @ts-check
/** The profile of a time range as a table and as totals. */

import { choice, h, listen, placeText, pressInTree, propertyList } from "../../dom.js";
import { icon } from "../../canvas/draw_icon.js";
import {
  cutText,
  formatBytes,
  formatCount,
  formatDuration,
  dotted,
  placeOf,
  plural,
  unbroken,
} from "../../scene/format_numbers_and_names.js";
import { moduleTimes, nameOfModules } from "../../scene/module_times_tree.js";
import { profileRange } from "../../scene/range_profile.js";
import { timedSteps } from "../../scene/step_of_time_or_node.js";
import { lineLink } from "../panels_and_tables.js";
import { heldBytesAt } from "../../scene/sum_and_describe_saved_bytes.js";
import { olderSteps } from "../../scene/idle_and_compile_times.js";
import {
  betweenOps,
  compiledIn,
  leadOf,
  mostlyInStep,
  PHASE_MEANINGS,
  phaseTimes,
  shareText,
  stoppedBackward,
  timeSentence,
} from "../../scene/phase_times.js";

/** @typedef {import("../../scene/range_profile.js").TimeRange} TimeRange */
/** @typedef {import("../../scene/range_profile.js").ProfileRow} ProfileRow */
/** @typedef {import("../../scene/range_profile.js").Grouping} Grouping */

const MAX_ROWS = 60;
const BETWEEN = "between ops";
const NUMBERS = ["ops", "time", "share"];
/**
 * @param {number} first of the columns that are aligned right
 * @param {number} last
 * @returns {(text: string, at: number) => HTMLElement}
 */
const headCell = (first, last) => (text, at) =>
  h("th", {
    class: at < first || at > last ? "" : "agv-right",
    text,
    title: text === "ops" ? "and nodes" : "",
  });

const PART = "agv-phase-part";

export class RangeProfilePanel {
  /** @param {import("../../shared_view_state.js").Store} store */
  constructor(store) {
    this.store = store;
    /** @type {TimeRange | null} */
    this.range = null;
    /** @type {Grouping} */
    this.grouping = "line";
    /** @type {Set<string>} paths of the modules that are unfolded */
    this.open = new Set();
    /** Path of the row that the keys move from. */
    this.focused = "";
    this.table = h("div", { class: "agv-panel-body agv-scroll", attrs: { tabindex: 0 } });
    this.totals = h("div", { class: "agv-panel-details", attrs: { tabindex: 0 } });
    this.rangeText = h("span", "agv-muted");
    const group = (/** @type {string} */ name) => {
      this.grouping = /** @type {Grouping} */ (name);
      this.fill(this.range);
    };
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
          h("span", "agv-end", choice(["line", "module", "node"], "line", group)),
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

  /** @param {TimeRange | null} range null profiles the step that is shown, or the recording */
  fill(range) {
    this.range = range;
    const { sceneIndex } = this.store;
    const whole = timedSteps(sceneIndex, this.store.step);
    const [start, end] = range ?? whole.range;
    const step = range ? undefined : whole.step;
    const times = phaseTimes(sceneIndex, [start, end], step);
    const of = (/** @type {Grouping} */ grouping) =>
      profileRange(sceneIndex, [start, end], grouping, step);
    const found = of(this.grouping);
    const from = this.store.scene.steps[this.store.step]?.start_ns ?? 0;
    const rangeText = `${formatDuration(Math.max(0, start - from))} – ${formatDuration(end - from)}`;
    const cut = cutText(Math.min(MAX_ROWS, found.length), found.length, "longest");
    const all = step === -1 ? "whole recording" : "without the warm-up";
    const what = range ? rangeText : step !== undefined && step >= 0 ? "this step" : all;
    const counted = found.reduce((sum, row) => sum + row.time, 0);
    // Of a node that failed, the end is not known: its time may contain idle time.
    times.active = Math.max(times.active, counted);
    // The table adds up to the active time: what is no time of an op is its last row.
    const nothing = { modules: new Set(), count: 0, node: -1, filename: "", lineno: 0 };
    const time = times.active - counted;
    /** @type {ProfileRow} */
    const between = {
      ...nothing,
      label: BETWEEN,
      phase: "outside",
      time,
      parts: { between: time },
    };
    const rest = time > times.active / 1e4 ? [between] : [];
    const stopped = stoppedBackward(sceneIndex, [start, end], this.store.step);
    const { lead, more, line } = leadOf(times, of("line"));
    const mostly = line && step === -1 ? mostlyInStep(this.store.scene, line) : "";
    const text = timeSentence(times, lead, more + mostly);
    const link = line && lineLink(this.store, line);
    const place = link?.textContent ?? "";
    const [before, after = ""] = (place ? text.split(place) : [text]).map(unbroken);
    this.sentence.replaceChildren(unbroken(stopped) + before, link ?? "", after);
    const second = this.grouping === "line" ? "code" : "phase";
    const head = [this.grouping, second, "module", ...NUMBERS].map(headCell(3, 4));
    const longest = Math.max(1, time, ...found.map((row) => row.time));
    this.rangeText.textContent = dotted([what, this.grouping !== "module" && cut]);
    const isTree = this.grouping === "module";
    if (isTree) this.#fillTree([...moduleTimes(found), ...moduleTimes(rest)], times.active);
    else {
      const shown = [...found.slice(0, MAX_ROWS), ...rest];
      const body = shown.map((row) => this.#row(row, times.active, longest));
      this.#fillTable(head, body);
    }
    this.totals.replaceChildren(...this.#totals([start, end], times));
  }

  /**
   * @param {HTMLElement[]} head
   * @param {HTMLElement[]} rows
   * @param {object} [attrs]
   */
  #fillTable(head, rows, attrs) {
    const table = h(
      "table",
      { class: "agv-table agv-table-sorted", ...attrs },
      h("thead", {}, h("tr", {}, ...head)),
      h("tbody", {}, ...rows),
    );
    this.table.replaceChildren(table);
    return table;
  }

  /**
   * Show the modules as a tree. A row has the sum of what is in its module, folded or not.
   *
   * @param {import("../../scene/module_times_tree.js").ModuleTimes[]} roots
   * @param {number} active
   * @param {boolean} [focus] whether the row of the keys has the focus
   */
  #fillTree(roots, active, focus = false) {
    const longest = Math.max(1, ...roots.map(({ sum }) => sum.time));
    /** @type {{path: string, level: number, isFolder: boolean, element: HTMLElement}[]} */
    const rows = [];
    const again = () => this.#fillTree(roots, active, true);
    const toggle = (/** @type {string} */ path, opens = !this.open.has(path)) => {
      this.open[opens ? "add" : "delete"](path);
      this.focused = path;
      again();
    };
    const list = (/** @type {typeof roots} */ some, /** @type {number} */ level, around = "") => {
      for (const each of some) {
        const { path, own, sum, parts } = each;
        const isFolder = parts.length > 0;
        const isOpen = this.open.has(path);
        const name = h(
          "td",
          { class: sum.count ? "agv-strong agv-ellipsis" : "agv-ellipsis", title: path },
          isFolder && icon(isOpen ? "down" : "right"),
          nameOfModules(each, around),
        );
        name.style.paddingLeft = `${level * 14 - (isFolder ? 2 : -14)}px`;
        const inside = isFolder && plural(parts.length, own ? "part" : "module");
        const element = h(
          "tr",
          {
            attrs: {
              tabindex: -1,
              "aria-level": level,
              "aria-expanded": isFolder ? String(isOpen) : null,
            },
            onclick: () => (isFolder ? toggle(path) : this.#show(sum)),
          },
          name,
          h(
            "td",
            `agv-phase-${isFolder ? "" : sum.phase} agv-muted`,
            isFolder ? `sum of ${inside}` : own?.modules.size || path === BETWEEN ? "" : sum.phase,
          ),
          h("td", "agv-right agv-muted", own ? formatDuration(own.time) : ""),
          ...this.#numbers(sum, active, longest),
        );
        rows.push({ path, level, isFolder, element });
        if (isOpen) list(parts, level + 1, path);
      }
    };
    list(roots, 1);
    const head = ["module", "contains", "itself", ...NUMBERS].map(headCell(2, 4));
    const elements = rows.map(({ element }) => element);
    const attrs = { role: "treegrid", "aria-label": "Time of modules" };
    const table = this.#fillTable(head, elements, { attrs });
    const place = () =>
      Math.max(
        0,
        rows.findIndex(({ path }) => path === this.focused),
      );
    const go = (/** @type {number} */ at) => {
      const to = rows[at];
      rows[place()].element.tabIndex = -1;
      this.focused = to.path;
      to.element.tabIndex = 0;
      to.element.focus();
    };
    if (rows.length) rows[place()].element.tabIndex = 0;
    if (focus) go(place());
    listen(table, "keydown", (event) => {
      const at = place();
      const { path, isFolder, element } = rows[at];
      pressInTree(event, rows, at, isFolder ? this.open.has(path) : null, {
        go,
        toggle: (opens) => toggle(path, opens),
        enter: () => element.click(),
      });
    });
  }

  /** @param {ProfileRow} row */
  #show({ node }) {
    if (node >= 0) this.store.reveal({ kind: "node", index: node });
  }

  /**
   * @param {ProfileRow} row
   * @param {number} duration of the range, without idle intervals, or the time of all rows
   * @param {number} longest time of all rows
   * @returns {HTMLElement}
   */
  #row(row, duration, longest) {
    const code = this.store.sceneIndex.source.get(row.filename)?.get(row.lineno)?.trim();
    const modules = [...row.modules];
    const isCompiled = this.store.compiledRegionOf(row.node) >= 0;
    const where = modules.length > 2 ? `${modules[0]} +${modules.length - 1}` : modules.join(", ");
    return h(
      "tr",
      { onclick: () => this.#show(row) },
      h(
        "td",
        {
          class: row.count ? "agv-strong agv-ellipsis" : "agv-ellipsis",
          title: row.label,
        },
        placeText(row.label),
      ),
      code
        ? h(
            "td",
            { class: "agv-ellipsis" },
            isCompiled && h("span", "agv-muted", "compiled region "),
            h("code", { text: code, title: code }),
          )
        : h(
            "td",
            `agv-phase-${row.phase}`,
            row.label === BETWEEN ? "Python, PyTorch's engine" : row.phase,
          ),
      h("td", {
        class: "agv-muted agv-ellipsis",
        text: where,
        title: modules.join("\n"),
      }),
      ...this.#numbers(row, duration, longest),
    );
  }

  /**
   * @param {ProfileRow} row
   * @param {number} duration
   * @param {number} longest
   * @returns {HTMLElement[]} cells of its count, its time and its share
   */
  #numbers(row, duration, longest) {
    const parts = Object.entries(row.parts).filter(([, ns]) => ns > 0);
    const bars = parts.map(([phase, ns]) => {
      const bar = h("span", `agv-profile-bar agv-profile-bar-${phase}`);
      bar.style.setProperty("--share", String(ns / longest));
      return bar;
    });
    const title = parts.map(([phase, ns]) => `${phase} ${formatDuration(ns)}`).join(", ");
    return [
      h("td", "agv-right", row.count ? formatCount(row.count) : ""),
      h("td", "agv-right", formatDuration(row.time)),
      h("td", { class: "agv-nowrap", title }, ...bars, ` ${shareText(row.time, duration)}`),
    ];
  }

  /**
   * @param {TimeRange} range
   * @param {import("../../scene/phase_times.js").PhaseTimes} times
   * @returns {HTMLElement[]} the phases with their parts, which add up to the duration
   */
  #totals([start, end], times) {
    const { scene } = this.store;
    const [before, after] = [heldBytesAt(scene, start), heldBytesAt(scene, end)];
    const most = Math.max(1, ...times.phases.map(({ total }) => total));
    // The sentence and the comparison, too, have compilations apart from phases.
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
        line(name, total - compiled, name),
        line(name === "backward" ? "nodes" : "ops", ops ?? 0, name, PART),
        line("recomputation", recomputed, "recompute", PART),
        line(BETWEEN, betweenOps(phase), "between", PART),
      ];
    });
    lines.unshift(line("compiling", compiledIn(times), "compile"));
    const all = h(
      "tr",
      "agv-phase-total",
      h("td", "", "active"),
      h("td", "agv-right", formatDuration(times.active)),
      h("td"),
    );
    const notKept = Math.max(0, Math.min(olderSteps(scene), end) - start);
    const waited = times.idle - notKept;
    const textOf = (/** @type {number} */ ns) => (ns > 0 ? formatDuration(ns) : "");
    return [
      h("table", "agv-phases", h("tbody", {}, ...lines, all)),
      propertyList([
        ["duration", this.range || times.idle > 0 ? textOf(end - start) : ""],
        ["of it older steps, not kept", textOf(notKept)],
        ["of it idle: nothing ran", textOf(waited)],
        ["saved tensors", this.range ? `${formatBytes(before)} → ${formatBytes(after)} held` : ""],
      ]),
    ];
  }
}
