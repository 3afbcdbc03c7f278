// @ts-check
/** The memory that checkpointing or offloading modules would free, and the time it would add. */

import { startDrawing, traceSteps } from "../../canvas/chart_parts.js";
import { copyButton } from "../../copy_button.js";
import { button, h, propertyList } from "../../dom.js";
import { cutText, formatBytes, formatDuration, plural } from "../../scene/format.js";
import { panel, table } from "../panel.js";
import { predictMemory } from "../../scene/predict_memory.js";

/** @typedef {import("../../scene/predict_memory.js").Prediction} Prediction */

const MAX_ROWS = 40;
const KINDS = ["checkpoint", "offload"];
const HEAD = ["module", "saved at peak", "would free", "step time", "choose"];
/** Recorded steps without which the time of a module is that of its warm-up. */
const FEW_STEPS = 2;

/**
 * @typedef {object} Row
 * @property {string} pattern "h.*.attn"
 * @property {string[]} modules
 * @property {number} nbytes held at the peak
 * @property {boolean} checkpointed
 */

export class WhatIf {
  /**
   * @param {import("../../store.js").Store} store
   * @param {() => import("../../canvas/theme.js").Palette} palette
   */
  constructor(store, palette) {
    this.store = store;
    this.palette = palette;
    /** @type {Map<string, string>} kind by pattern */
    this.chosen = new Map();
    this.before = predictMemory(store.scene, new Map());
    const all = moduleRows(store.scene, this.before);
    this.rows = all.slice(0, MAX_ROWS);
    const cut = cutText(this.rows.length, all.length);
    this.body = h("tbody");
    this.canvas = h("canvas", "agv-chart-canvas");
    this.result = h("div", "agv-panel-details");
    const isFew = store.scene.steps.length < FEW_STEPS;
    const few = isFew ? ["times of 1 step are unreliable"] : [];
    const none =
      "A prediction needs the ops of module calls: record(model) with ops=True, and a model.";
    this.elements = [
      panel(
        "table",
        [
          h("h3", "", "What if"),
          h("span", "agv-muted agv-clamp", [cut || "predicted", ...few].join(" · ")),
        ],
        this.rows.length
          ? table(HEAD, 1, 3, this.body, { name: 0, columns: "1fr 1fr 1fr 142px" })
          : h("p", "agv-empty-text", none),
      ),
      panel("side", [h("h3", "", "Prediction")], h("div", "agv-chart", this.canvas), this.result),
    ];
    this.#list();
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(/** @type {HTMLElement} */ (this.canvas.parentElement));
    this.#fill();
  }

  destroy() {
    this.observer.disconnect();
  }

  /** @returns {Prediction} with all chosen modules */
  get prediction() {
    /** @type {Map<string, string>} */
    const kinds = new Map();
    for (const { pattern, modules, checkpointed } of this.rows) {
      const kind = !checkpointed && this.chosen.get(pattern);
      if (kind) for (const module of modules) kinds.set(module, kind);
    }
    return predictMemory(this.store.scene, kinds);
  }

  /** List the modules; those that alone free nothing when a button is pressed. */
  #list() {
    const rows = this.rows.map((row) => {
      const kinds = row.checkpointed ? [] : row.modules;
      const chosen = new Map(kinds.map((module) => [module, KINDS[0]]));
      const alone = predictMemory(this.store.scene, chosen);
      const isUseless = !row.checkpointed && alone.peak >= this.before.peak;
      return { element: this.#row(row, alone), isUseless };
    });
    const useless = rows.filter(({ isUseless }) => isUseless).map(({ element }) => element);
    this.body.append(...rows.flatMap(({ element, isUseless }) => (isUseless ? [] : [element])));
    if (!useless.length) return;
    const label = `Show ${plural(useless.length, "module")} that alone would free nothing`;
    const more = button(label, "agv-link", () => last.replaceWith(...useless));
    const attrs = { colspan: HEAD.length };
    const last = h("tr", {}, h("td", { class: "agv-stacked-name", attrs }, more));
    this.body.append(last);
  }

  /**
   * @param {Row} row
   * @param {Prediction} alone if only it is checkpointed
   * @returns {HTMLElement}
   */
  #row({ pattern, modules, nbytes, checkpointed }, alone) {
    const { scene } = this.store;
    const group = scene.groups.find(({ path }) => path === modules[0]);
    const show = () => group && this.store.set("selected", { kind: "group", index: group.index });
    const buttons = KINDS.map((kind) => {
      const press = (/** @type {Event} */ event) => {
        event.stopPropagation();
        if (this.chosen.get(pattern) === kind) this.chosen.delete(pattern);
        else this.chosen.set(pattern, kind);
        for (const each of buttons) {
          const pressed = this.chosen.get(pattern) === each.textContent;
          each.setAttribute("aria-pressed", String(pressed));
        }
        this.#fill();
      };
      const element = button(`${kind} ${pattern}`, "", press, kind);
      element.setAttribute("aria-pressed", "false");
      return element;
    });
    const count = modules.length > 1 ? ` ×${modules.length}` : "";
    const freed = this.before.peak - alone.peak;
    return h(
      "tr",
      { onclick: show },
      h(
        "td",
        { class: "agv-strong agv-ellipsis agv-stacked-name", title: modules.join("\n") },
        pattern,
        count,
      ),
      h("td", "agv-right", formatBytes(nbytes)),
      h("td", "agv-right", checkpointed ? "" : signedBytes(freed)),
      h(
        "td",
        "agv-right",
        checkpointed ? "" : alone.recomputeNs ? this.#timeAdded(alone) : "no backward",
      ),
      h(
        "td",
        {},
        checkpointed
          ? h("span", "agv-recompute", "checkpointed")
          : h("span", { class: "agv-choice", attrs: { role: "group" } }, ...buttons),
      ),
    );
  }

  /**
   * @param {Prediction} prediction
   * @returns {string} "+12–15 %" of the recorded steps; one step gives no range
   */
  #timeAdded({ recomputeNs, recomputeRangeNs: [least, most], steps }) {
    const { end_ns, idle_ns } = this.store.scene.summary;
    const idle = idle_ns.reduce((sum, time, at) => sum + (at % 2 ? time : -time), 0);
    const whole = Math.max(1, (end_ns - idle) / Math.max(1, this.store.scene.steps.length));
    const percent = (/** @type {number} */ ns) => Math.round((100 * ns) / whole);
    const [low, high] = [percent(least), percent(most)];
    if (steps < FEW_STEPS || low === high) return `about +${percent(recomputeNs)} %`;
    return `+${low}–${high} %`;
  }

  #fill() {
    const { peak } = this.before;
    const after = this.prediction;
    this.after = after;
    const freed = peak - after.peak;
    const percent = peak ? ` (${Math.round((100 * freed) / peak)} %)` : "";
    // The pattern "h.*" also matches the modules of that name that are checkpointed already.
    const names = (/** @type {Row} */ { pattern, modules }) =>
      this.rows.some((row) => row.checkpointed && row.pattern === pattern) ? modules : [pattern];
    const patterns = (/** @type {string} */ kind) =>
      this.rows
        .filter(({ pattern, checkpointed }) => !checkpointed && this.chosen.get(pattern) === kind)
        .flatMap(names);
    const options = KINDS.filter((kind) => patterns(kind).length).map(
      (kind) => `${kind}=${JSON.stringify(patterns(kind))}`,
    );
    const code = `trace.predict_memory(${options.join(", ")})`;
    this.result.replaceChildren(
      propertyList([
        ["held at peak", formatBytes(peak)],
        ["predicted", this.chosen.size ? formatBytes(after.peak) : "choose modules in the table"],
        ["freed", this.chosen.size ? `${signedBytes(freed)}${percent}` : ""],
        ["recomputed", after.recomputeNs ? `${formatDuration(after.recomputeNs)} added` : ""],
        ["recorded steps", after.recomputeNs ? spread(after) : ""],
        [
          "copied",
          after.copied
            ? `${formatBytes(after.copied)} each way, ${formatDuration(after.addedNs - after.recomputeNs)} at 12 GB/s`
            : "",
        ],
      ]),
      ...(this.chosen.size ? [h("p", {}, h("code", "", code)), copyButton("code", code)] : []),
    );
    this.draw();
  }

  /** Draw saved memory over events, as recorded and as predicted. */
  draw() {
    const drawing = startDrawing(this.canvas, this.palette());
    if (!drawing || !this.after) return;
    const { pen, width, height } = drawing;
    const { ctx, palette, family } = pen;
    const curves = [this.before.curve, this.after.curve];
    const last = Math.max(1, ...curves.map((curve) => curve.at(-1)?.time_ns ?? 0));
    const top = Math.max(1, this.before.peak, this.after.peak);
    const x = (/** @type {number} */ seq) => 12 + (seq / last) * (width - 24);
    const y = (/** @type {number} */ nbytes) => height - 18 - (nbytes / top) * (height - 40);
    const paint = (/** @type {Prediction["curve"]} */ curve, /** @type {boolean} */ fills) => {
      traceSteps(ctx, curve, x, y, [0, last]);
      ctx.stroke();
      if (!fills) return;
      ctx.lineTo(x(last), y(0));
      ctx.globalAlpha = 0.2;
      ctx.fill();
      ctx.globalAlpha = 1;
    };
    ctx.lineWidth = 1.3;
    ctx.strokeStyle = palette.saved;
    ctx.fillStyle = palette.saved;
    paint(curves[0], !this.chosen.size);
    ctx.font = `10px ${family}`;
    ctx.textBaseline = "alphabetic";
    const label = (
      /** @type {Prediction["curve"]} */ curve,
      /** @type {number} */ peak,
      /** @type {string} */ text,
    ) => {
      const at = x(curve.find(({ nbytes }) => nbytes === peak)?.time_ns ?? 0);
      const size = ctx.measureText(text).width + 4;
      const left = Math.min(Math.max(12, at - size / 2), width - size - 8);
      const hue = ctx.fillStyle;
      ctx.fillStyle = palette.surface;
      ctx.fillRect(left - 2, y(peak) - 15, size, 12);
      ctx.fillStyle = hue;
      ctx.textAlign = "left";
      ctx.fillText(text, left, y(peak) - 5);
    };
    label(curves[0], this.before.peak, `recorded ${formatBytes(this.before.peak)}`);
    if (this.chosen.size) {
      ctx.strokeStyle = ctx.fillStyle = palette.recompute;
      paint(curves[1], true);
      const isClose = y(this.after.peak) - y(this.before.peak) < 16;
      if (!isClose) {
        label(curves[1], this.after.peak, `predicted ${formatBytes(this.after.peak)}`);
      }
    }
    ctx.fillStyle = palette.text2;
    ctx.textAlign = "left";
    ctx.fillText("events", 12, height - 5);
  }
}

/**
 * @param {Prediction} prediction
 * @returns {string} how much its time varies between the recorded steps
 */
function spread({ steps, recomputeRangeNs: [least, most] }) {
  if (steps < 2) return "1, so the time is uncertain: record several";
  return `${steps}, ${formatDuration(least)} to ${formatDuration(most)}`;
}

/**
 * @param {number} nbytes
 * @returns {string} "−66 kB" for bytes that are added
 */
function signedBytes(nbytes) {
  return `${nbytes < 0 ? "−" : ""}${formatBytes(Math.abs(nbytes))}`;
}

/**
 * Return the modules whose calls hold memory at the peak, numbered ones together, the largest first.
 *
 * @param {import("../../types.js").Scene} scene
 * @param {Prediction} before the memory as it was recorded
 * @returns {Row[]}
 */
export function moduleRows({ module_calls, held_saves, storage_sizes, regions }, { curve, peak }) {
  const at = curve.find(({ nbytes }) => nbytes === peak)?.time_ns ?? 0;
  const inRegion = new Set(regions.map(({ module }) => module));
  /** @type {Map<string, Row & { storages: Set<number> }>} */
  const rows = new Map();
  for (const { storage, call, start_seq, end_seq } of held_saves) {
    if (start_seq > at || (end_seq >= 0 && end_seq <= at)) continue;
    for (let each = call; each >= 0; each = module_calls[each].parent) {
      const { module } = module_calls[each];
      if (!module) continue;
      const checkpointed = inRegion.has(module);
      const pattern = module.replace(/(^|\.)\d+(?=\.|$)/g, "$1*");
      const key = `${pattern} ${checkpointed}`;
      const row = rows.get(key) ?? {
        pattern,
        modules: [],
        nbytes: 0,
        checkpointed,
        storages: new Set(),
      };
      rows.set(key, row);
      if (!row.modules.includes(module)) row.modules.push(module);
      if (row.storages.has(storage)) continue;
      row.storages.add(storage);
      row.nbytes += storage_sizes[storage].nbytes;
    }
  }
  return [...rows.values()].sort((a, b) => b.nbytes - a.nbytes);
}
