// @ts-check
/**
 * The view of what fills the memory and would free it: a sentence, saved memory over time, a table of
 * what is held at the peak, with the predicted effect of checkpointing or offloading its modules.
 */

import { icon } from "../../canvas/draw_icon.js";
import { copyButton } from "../../copy_button.js";
import { button, choice, h, placeText, setPressed } from "../../dom.js";
import { largestKinds } from "../../scene/saved_kind_colors.js";
import { isStopped, summaryOf } from "../../scene/sum_and_describe_saved_bytes.js";
import { idleTimes, overlapOf } from "../../scene/idle_and_compile_times.js";
import { formatBytes, plural, unbroken } from "../../scene/format_numbers_and_names.js";
import { shareText } from "../../scene/phase_times.js";
import { predictMemory } from "../../scene/predict_memory.js";
import { stepAt } from "../../scene/step_of_time_or_node.js";
import { peakIn } from "../../scene/storage_holds.js";
import { piecesOfKinds } from "../bar_of_kinds.js";
import { lineLink, panel, table } from "../panels_and_tables.js";
import { changeOf } from "../saved_memory_fold/memory_budget.js";
import { heldRows } from "./rows_held_at_peak.js";
import { ORDER, livePeak } from "../../scene/figures_of_step.js";
import { ALL, StackedMemory, fillOfAll, kindOfAll } from "./stacked_memory.js";

/** @typedef {import("../../scene/predict_memory.js").Prediction} Prediction */
/** @typedef {import("./rows_held_at_peak.js").HeldRow} HeldRow */
/** @typedef {{modules: string[], pattern: string, checkpoint: Prediction, freed: number}} Effect */

const KINDS = ["checkpoint", "offload"];
/** Recorded steps without which the time of a module is that of its warm-up. */
const FEW_STEPS = 2;
/** Rows that are shown before one is opened. */
const FIRST_ROWS = 16;
const MAX_ROWS = 40;
/** Share of the peak by which two modules free about as much. */
const ALIKE = 0.02;
/** Share of the peak from which something is worth a sentence. */
const MUCH = 0.05;

export class Memory {
  /**
   * @param {import("../../shared_view_state.js").Store} store
   * @param {() => import("../../canvas/theme.js").Palette} palette
   */
  constructor(store, palette) {
    this.store = store;
    this.summary = store.scene.summary;
    /** @type {Map<string, {kind: string, modules: string[]}>} what was chosen, by pattern */
    this.chosen = new Map();
    /** @type {Set<HeldRow>} */
    this.open = new Set();
    /** @type {WeakMap<HeldRow, HTMLElement>} */
    this.elements = new WeakMap();
    this.before = this.#predict([]);
    this.inRegion = new Set(store.scene.regions.map(({ module }) => module));
    const calls = [...store.scene.module_calls];
    const fixed = new Set(calls.map((each) => each.fixed && each.module));
    /** Modules whose effect can be predicted: others are in regions, or not called by themselves. */
    this.free = new Set(calls.map(({ module }) => module).filter((name) => !fixed.has(name)));
    this.chart = new StackedMemory(store, palette);
    this.sentence = h("p", { class: "agv-sentence", attrs: { "aria-live": "polite" } });
    this.code = h("div", "agv-memory-code");
    this.body = h("tbody");
    const few = store.scene.steps.length < FEW_STEPS;
    /** @type {WeakMap<HeldRow, Effect>} what checkpointing rows frees */
    this.effects = new WeakMap();
    const head = ["held at the peak by", "bytes", "", "checkpointing it", "try"];
    const group = (/** @type {string} */ name) => {
      this.chart.group(/** @type {import("./stacked_memory.js").Grouping} */ (name));
      this.#fill();
    };
    const groupings = ["kind", "module", "line"];
    if (store.scene.live_points.length) groupings.push(ALL);
    this.live = h("p", "agv-difference-more");
    const tableElement = (this.table = table(head, 1, 1, this.body, {
      name: 0,
      columns: "60px minmax(0, 1fr) 116px auto",
    }));
    this.element = h(
      "div",
      "agv-memory",
      panel(
        "wide",
        [this.sentence, h("span", "agv-end", choice(groupings, this.chart.grouping, group))],
        this.code,
        this.live,
        this.chart.element,
      ),
      h("section", "agv-panel agv-panel-table", tableElement),
    );
    if (few) tableElement.querySelectorAll("th")[3].title = "times of one step: rough, or unknown";
    store.subscribe(["step"], () => this.#build());
    this.#build();
  }

  destroy() {
    this.chart.destroy();
  }

  draw() {
    this.chart.draw();
  }

  /** @returns {number} bytes at the peak of the step that is shown, or of the recording */
  get #peak() {
    const { older_nbytes, peak_nbytes } = this.summary;
    return peak_nbytes + older_nbytes;
  }

  #build() {
    this.summary = summaryOf(this.store.scene, this.store.step);
    this.before = this.#predict([]);
    this.effects = new WeakMap();
    this.rows = heldRows(this.store);
    this.open.clear();
    // The largest modules are opened while the table is short.
    let shown = this.rows.length;
    for (;;) {
      const [next] = this.#visible()
        .filter(({ row }) => row.kind === "module" && row.rows.length && !this.open.has(row))
        .sort((a, b) => b.row.nbytes - a.row.nbytes);
      if (!next || (this.open.size && shown + next.row.rows.length > FIRST_ROWS)) break;
      this.open.add(next.row);
      shown += next.row.rows.length;
    }
    this.#fill();
  }

  /** @returns {{row: HeldRow, depth: number, around: string}[]} rows whose parents are open */
  #visible() {
    /** @type {{row: HeldRow, depth: number, around: string}[]} */
    const found = [];
    const visit = (
      /** @type {HeldRow[]} */ rows,
      /** @type {number} */ depth,
      /** @type {string} */ around,
    ) => {
      for (const row of rows) {
        found.push({ row, depth, around });
        const inside = row.kind === "module" ? `${around}${around && "."}${row.label}` : around;
        if (this.open.has(row)) visit(row.rows, depth + 1, inside);
      }
    };
    visit(this.rows ?? [], 0, "");
    return found;
  }

  #fill() {
    const visible = this.chart.isAll ? [] : this.#visible();
    const elements = visible.slice(0, MAX_ROWS).map((each) => this.#row(each));
    if (this.chart.isAll) elements.push(...rowsOfAll(this.store));
    const rest = visible.length - elements.length;
    if (rest > 0) {
      const more = button(`Show ${plural(rest, "row")} more`, "agv-link", () =>
        last.replaceWith(...visible.slice(MAX_ROWS).map((each) => this.#row(each))),
      );
      const last = h("tr", {}, h("td", { class: "agv-stacked-name", attrs: { colspan: 5 } }, more));
      elements.push(last);
    }
    this.body.replaceChildren(...elements);
    // Columns without an entry take no room.
    for (const at of [4, 5]) {
      const cells = elements.map((row) => row.children[at - 1]?.textContent ?? "");
      this.table.classList.toggle(`agv-without-cell-${at}`, !cells.some(Boolean));
    }
    this.#say();
  }

  /**
   * @param {{row: HeldRow, depth: number, around: string}} shown
   * @returns {HTMLElement}
   */
  #row({ row, depth, around }) {
    const { scene } = this.store;
    const { kind, label, note, rows, nbytes } = row;
    const isOpen = this.open.has(row);
    const parent = around.split(".").pop();
    const name = parent && /^[\d*]/.test(label) ? `${parent}.${label}` : label;
    const toggle = (/** @type {Event} */ event) => {
      event.stopPropagation();
      if (isOpen) this.open.delete(row);
      else this.open.add(row);
      this.#fill();
      this.elements.get(row)?.querySelector("button")?.focus();
    };
    const expander = button(`${isOpen ? "Close" : "Open"} ${label}`, "agv-memory-expander", toggle);
    expander.replaceChildren(icon(isOpen ? "down" : "right"));
    expander.setAttribute("aria-label", `${isOpen ? "Close" : "Open"} ${label}`);
    expander.setAttribute("aria-expanded", String(isOpen));
    const times = row.modules.length > 1 ? ` ×${row.modules.length}` : "";
    const count = kind === "tensor" && row.count > 1 ? ` ×${row.count}` : "";
    const { largest } = row;
    const link = kind === "line" && largest?.lineno ? lineLink(this.store, largest) : null;
    const cell = h(
      "td",
      {
        class: "agv-memory-name agv-stacked-name",
        title: [label, note].filter(Boolean).join("\n"),
      },
      h(
        "div",
        "",
        rows.length ? expander : h("span", "agv-memory-expander"),
        h(kind === "line" ? "code" : kind === "module" ? "b" : "span", "", name),
        h(
          "span",
          "agv-muted",
          link ?? "",
          link ? note.slice(link.textContent?.length) : placeText(note || times || count),
        ),
      ),
    );
    cell.style.paddingLeft = `${12 + 16 * depth}px`;
    const bar = h("span", "agv-memory-bar", ...piecesOfKinds(scene, row.kinds, this.#peak));
    const element = h(
      "tr",
      { onclick: () => this.#select(row) },
      cell,
      h("td", "agv-right agv-strong", formatBytes(nbytes)),
      h("td", "agv-memory-bars", bar),
      ...this.#predictionCells(row, around),
    );
    this.elements.set(row, element);
    return element;
  }

  /**
   * @param {HeldRow} row
   * @param {string} around names of the modules around it
   * @returns {HTMLElement[]} what checkpointing frees and costs, and buttons to choose it
   */
  #predictionCells(row, around) {
    const none = [h("td"), h("td")];
    // Of a step that failed, only its finding is to be changed.
    if (
      !this.before.curve.length ||
      row.kind !== "module" ||
      isStopped(this.store.scene, this.store.step)
    ) {
      return none;
    }
    const { modules, pattern, checkpoint, freed } = this.#best(row, around);
    if (modules.every((module) => this.inRegion.has(module))) {
      return [h("td", "agv-recompute", "checkpointed"), h("td")];
    }
    if (!modules.some((module) => this.free.has(module))) return none;
    const offload = this.#predict([{ kind: KINDS[1], modules }]);
    if (freed <= 0 && this.before.peak - offload.peak <= 0) {
      return [h("td", "agv-muted", "frees nothing"), h("td")];
    }
    const useful = KINDS.filter((kind) => kind !== KINDS[0] || freed > 0);
    const buttons = useful.map((kind) => {
      const press = (/** @type {Event} */ event) => {
        event.stopPropagation();
        if (this.chosen.get(pattern)?.kind === kind) this.chosen.delete(pattern);
        else this.chosen.set(pattern, { kind, modules });
        for (const each of buttons) {
          const pressed = this.chosen.get(pattern)?.kind === each.textContent;
          setPressed(each, pressed);
        }
        this.#say();
      };
      const element = button(`${kind} ${pattern}`, "", press, kind);
      setPressed(element, this.chosen.get(pattern)?.kind === kind);
      return element;
    });
    const time = checkpoint.recomputeNs ? this.#timeAdded(checkpoint) : "no backward";
    // While a whole module runs again, all that is in it is held again.
    const inside = `${around}${around && "."}${row.label}`;
    const [part] = (this.open.has(row) ? row.rows : [])
      .filter((each) => each.kind === "module" && this.#best(each, inside).freed > freed)
      .sort((a, b) => this.#best(b, inside).freed - this.#best(a, inside).freed);
    const [verb, nbytes] =
      freed < 0 ? ["adds", formatBytes(-freed)] : ["frees", formatBytes(freed)];
    return [
      freed > 0
        ? h(
            "td",
            "",
            `${verb} `,
            h("b", "", nbytes),
            `, ${time}${time.endsWith("%") ? " time" : ""}`,
            part && h("span", "agv-muted", `; ${part.label} alone frees more`),
          )
        : h("td", "agv-muted", `${verb} ${freed ? nbytes : "nothing"}`),
      h("td", {}, h("span", { class: "agv-choice", attrs: { role: "group" } }, ...buttons)),
    ];
  }

  /**
   * Return the effect of checkpointing a row: of modules that contain only each other, the one that
   * frees most.
   *
   * @param {HeldRow} row
   * @param {string} around names of the modules around it
   * @returns {Effect}
   */
  #best(row, around) {
    const known = this.effects.get(row) ?? this.#bestOf(row, around);
    this.effects.set(row, known);
    return known;
  }

  /**
   * @param {HeldRow} row
   * @param {string} around
   * @returns {Effect}
   */
  #bestOf({ label, modules, around: outer }, around) {
    const found = [...outer, { label, modules }].map((each) => {
      const checkpoint = this.#predict([{ kind: KINDS[0], modules: each.modules }]);
      const freed = this.before.peak - checkpoint.peak;
      const pattern = `${around}${around && "."}${each.label}`;
      return { modules: each.modules, pattern, checkpoint, freed };
    });
    return found.reduce((best, each) => (each.freed > best.freed ? each : best));
  }

  /**
   * @param {Iterable<{kind: string, modules: string[]}>} choices
   * @returns {Prediction}
   */
  #predict(choices) {
    /** @type {Map<string, string>} */
    const kinds = new Map();
    for (const { kind, modules } of choices) {
      for (const module of modules) if (this.free.has(module)) kinds.set(module, kind);
    }
    return predictMemory(this.store.scene, kinds, this.store.step);
  }

  /**
   * @param {Prediction} prediction
   * @returns {string} "+12–15 %" of the recorded steps; one step gives no range, and if it is the
   *   first one of the process, the time of a module may be that of what was loaded in it
   */
  #timeAdded({ recomputeNs, recomputeRangeNs: [least, most], steps }) {
    const { scene, step } = this.store;
    const range = scene.steps[step] ?? { start_ns: 0, end_ns: scene.summary.end_ns };
    const { start_ns, end_ns } = range;
    const active = end_ns - start_ns - overlapOf(idleTimes(scene), start_ns, end_ns);
    const whole = Math.max(1, active / Math.max(1, step < 0 ? scene.steps.length : 1));
    const percent = (/** @type {number} */ ns) => Math.round((100 * ns) / whole);
    const [low, high] = [percent(least), percent(most)];
    if (steps < FEW_STEPS && low > 100) return "unknown";
    if (steps < FEW_STEPS || low === high)
      return +percent(recomputeNs) ? `about +${percent(recomputeNs)} %` : "less than +1 %";
    return `+${low}–${high} %`;
  }

  /** Write what fills the memory and would free it, or the effect of the choice. */
  #say() {
    const after = this.chosen.size ? this.#predict(this.chosen.values()) : null;
    this.chart.predict(after?.curve ?? null);
    const { isAll } = this.chart;
    const live = liveMemory(this.store, isAll, this.#peak);
    this.live.textContent = live;
    this.live.hidden = !live;
    this.sentence.textContent = unbroken(
      after ? this.#ofChoice(after) : isAll ? allAtPeak(this.store) : this.#ofPeak(),
    );
    this.code.hidden = !after;
    this.code.replaceChildren(...(after ? this.#codeOfChoice() : []));
  }

  /** @returns {HTMLElement[]} what makes the choice, as in the budget of the fold */
  #codeOfChoice() {
    const { budget_plans, summary } = this.store.scene;
    const chosen = [...this.chosen.values()];
    const modules = [...new Set(chosen.flatMap((each) => each.modules))];
    if (chosen.some(({ kind }) => kind !== KINDS[0])) {
      const options = KINDS.flatMap((kind) => {
        const patterns = [...this.chosen].filter(([, each]) => each.kind === kind).flatMap(namesOf);
        return patterns.length ? [`${kind}=${JSON.stringify(patterns)}`] : [];
      });
      const code = `trace.predict_memory(${options.join(", ")})`;
      return [h("code", "", code), copyButton("code", code)];
    }
    const plan = budget_plans.find(
      (each) =>
        each.modules.length === modules.length && modules.every((m) => each.modules.includes(m)),
    );
    const prefix = summary.root && `${summary.root}.`;
    const own = modules.map((name) => `'${name.replace(prefix, "")}'`).join(", ");
    const names = `(${own}${modules[1] ? "" : ","})`;
    const after = summary.checkpoint_code.replace("{names}", names);
    return changeOf(plan ?? { filename: "", lineno: 0, before: "", after });
  }

  /** @returns {string} */
  #ofPeak() {
    const peak = this.#peak;
    const { scene, step } = this.store;
    if (!peak) return "No tensor is kept for backward.";
    const chosen = scene.steps[step];
    const where = chosen ? `at the peak of step ${chosen.number}` : "at the peak";
    /** @type {Map<string, number>} */
    const sums = new Map();
    for (const { kinds } of this.rows ?? []) {
      for (const [kind, nbytes] of kinds) sums.set(kind, (sums.get(kind) ?? 0) + nbytes);
    }
    const [title, most] = largestKinds(scene, sums)[0] ?? ["", 0];
    const share = Math.round((100 * most) / peak);
    const of = title ? `, ${share} % of it ${title}` : "";
    return `${formatBytes(peak)} of saved tensors held ${where}${of}; ${this.#remedy(peak)}.`;
  }

  /**
   * @param {number} peak
   * @returns {string} what would free most of it
   */
  #remedy(peak) {
    const { summary } = this;
    if (isStopped(this.store.scene, this.store.step)) return "then the step stopped";
    const held = summary.held_nbytes + summary.older_nbytes;
    if (held > MUCH * peak && summary.backwards && !summary.error_type) {
      return `${formatBytes(held)} are still held at the end`;
    }
    /** @type {{freed: number, name: string, prediction: Prediction} | null} */
    let best = null;
    for (const { row, around } of this.#visible()) {
      if (row.kind !== "module") continue;
      const { pattern: name, checkpoint: prediction, freed } = this.#best(row, around);
      if (freed > (best?.freed ?? 0)) best = { freed, name, prediction };
    }
    // The same answer as that of the fold: of modules that free about as much, those of the plans.
    const { step, scene } = this.store;
    const plan = scene.budget_plans.findLast((each) => step < 0 || each.step === step);
    if (plan) {
      const { name } = plan;
      const prediction = this.#predict([{ kind: KINDS[0], modules: plan.modules }]);
      const freed = this.before.peak - prediction.peak;
      if (freed && (best?.freed ?? 0) - freed < ALIKE * peak) best = { freed, name, prediction };
    }
    if (!this.before.curve.length) return "a prediction needs record(model) with its ops";
    // The peak is that of one step: so are the bytes that checkpoints recompute.
    const top = peakIn(scene, { start_ns: 0, end_ns: scene.summary.end_ns });
    const at = step < 0 && scene.steps[1] ? stepAt(scene, top.time) : step;
    const { recomputed_nbytes: again } = summaryOf(scene, at);
    if (again) {
      const rest = best && best.freed > MUCH * peak ? `; ${best.name} could free more` : "";
      const of = at === step ? "" : ` of step ${scene.steps[at].number}`;
      return `checkpoints${of} recompute ${formatBytes(again)}${rest}`;
    }
    if (this.store.scene.compiled_regions.length && !best) return "the compiler chose what is kept";
    if (!best) return "checkpointing a module would free nothing";
    if (best.freed < MUCH * peak) {
      return `checkpointing a module would free at most ${formatBytes(best.freed)}`;
    }
    const added = best.prediction.recomputeNs ? this.#timeAdded(best.prediction) : "unknown";
    const time = added === "unknown" ? "" : `, ${added} time`;
    return `checkpointing ${best.name} would free ${formatBytes(best.freed)}${time}`;
  }

  /**
   * @param {Prediction} after
   * @returns {string}
   */
  #ofChoice(after) {
    const { peak } = this.before;
    const freed = peak - after.peak;
    const percent = peak ? Math.round((100 * Math.abs(freed)) / peak) : 0;
    const names = [...this.chosen].map(([pattern, { kind }]) => `${kind} ${pattern}`).join(", ");
    const change = `${freed < 0 ? "+" : "−"}${percent} %`;
    const costs = [];
    if (after.recomputeNs) costs.push(`time ${this.#timeAdded(after)}`);
    if (after.copied) costs.push(`${formatBytes(after.copied)} copied each way`);
    const texts = [
      `${formatBytes(peak)} → ${formatBytes(after.peak)} predicted (${change})`,
      ...costs,
    ];
    return `With ${names}: ${texts.join(", ")}.`;
  }

  /** @param {HeldRow} row */
  #select({ kind, path, largest }) {
    const { scene, sceneIndex } = this.store;
    const group = scene.groups.find((each) => each.kind === "module" && each.path === path);
    const storage = largest && sceneIndex.storageOf.get(largest.storage_id);
    if (kind === "module" && group) {
      this.store.set("selected", { kind: "group", index: group.index });
    } else if (storage !== undefined && storage !== null) {
      this.store.set("selected", { kind: "storage", index: storage });
    }
  }
}

/**
 * @param {import("../../shared_view_state.js").Store} store
 * @returns {{nbytes: number, where: string, kinds: {kind: typeof ORDER[number], own: number}[]}} of all
 *   memory at its peak, the largest first
 */
function livePeakOf({ scene, step }) {
  const chosen = scene.steps[step];
  const { at, nbytes } = livePeak(scene, chosen?.start_ns ?? 0, chosen?.end_ns ?? Infinity);
  const kinds = ORDER.map((kind) => ({ kind, own: scene.live_points[at][kind] }))
    .filter(({ own }) => own > 0)
    .sort((a, b) => b.own - a.own);
  return { nbytes, where: chosen ? `the peak of step ${chosen.number}` : "its peak", kinds };
}

/** @param {import("../../shared_view_state.js").Store} store */
function allAtPeak(store) {
  const { nbytes, where, kinds } = livePeakOf(store);
  const [{ kind, own }] = kinds;
  return `${formatBytes(nbytes)} of memory held at ${where}, ${shareText(own, nbytes)} of it ${kindOfAll(kind)}.`;
}

/**
 * @param {import("../../shared_view_state.js").Store} store
 * @returns {HTMLElement[]} rows of the table for what all memory holds at its peak
 */
function rowsOfAll(store) {
  const { nbytes, kinds } = livePeakOf(store);
  return kinds.map(({ kind, own }) => {
    const bar = h("span");
    bar.style.cssText = `width:${(100 * own) / nbytes}%;background:${fillOfAll(kind)}`;
    return h(
      "tr",
      {},
      h("td", "agv-memory-name agv-stacked-name", kindOfAll(kind)),
      h("td", "agv-right agv-strong", formatBytes(own)),
      h("td", "agv-memory-bars", h("span", "agv-memory-bar", bar)),
      h("td"),
      h("td"),
    );
  });
}

/**
 * Return sentences on all memory and on saved tensors, whose peaks may be at two moments.
 *
 * @param {import("../../shared_view_state.js").Store} store
 * @param {boolean} isAll whether the view is of all memory
 * @param {number} peak of saved tensors
 * @returns {string} "" without a recording of all memory
 */
function liveMemory(store, isAll, peak) {
  const { live_memory, live_points } = store.scene;
  if (!live_points.length) return "";
  const { nbytes, where, kinds } = livePeakOf(store);
  const all = `All memory at ${where}: ${formatBytes(nbytes)}.`;
  const saved = formatBytes(kinds.find(({ kind }) => kind === "saved")?.own ?? 0);
  const isSame = saved === formatBytes(peak);
  const other = isSame
    ? ""
    : ` Saved tensors alone peak at another moment, at ${formatBytes(peak)}.`;
  const unknown = live_memory.find((each) => each.nbytes < 0)?.kind;
  const rest = unknown
    ? ` Other memory is unknown: PyTorch does not count that of ${unknown}.`
    : "";
  return `${isAll ? "" : all}${other}${rest}`.trim();
}

/**
 * Return the names for `predict_memory`: the pattern, or the modules if it stands for some only.
 *
 * @param {[pattern: string, {modules: string[]}]} choice
 * @returns {string[]}
 */
function namesOf([pattern, { modules }]) {
  return pattern.includes("*") ? [pattern] : modules;
}
