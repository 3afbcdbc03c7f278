// @ts-check
/** Memory over time as stacked layers: saved, by module, kind or line; or all of it. */

import { fillBox, setStroke } from "../../canvas/shapes.js";
import { KeptDrawing, clipped } from "../../canvas/size_cache_and_clip_canvas.js";
import { paintTimes, ticks } from "../../canvas/paint_time_axis.js";
import { traceSteps } from "../../canvas/trace_step_curve.js";
import { paintPhases } from "../../canvas/phase_bands.js";
import { chartCanvas, h, listen, onResize } from "../../dom.js";
import { blockPrefix, formatBytes } from "../../scene/format_numbers_and_names.js";
import { GROUPINGS, changeTimes, stackLayers } from "../../scene/saved_memory_layers.js";
import { lastAt } from "../../scene/curve_of_bytes_held.js";
import { ORDER, livePeak } from "../../scene/figures_of_step.js";
import { peakIn } from "../../scene/storage_holds.js";
import { timeAxis } from "../../scene/time_axis.js";
import { paintText, widthOf, write } from "../../canvas/text_fitted_to_width.js";
import { kindHue } from "../../scene/saved_kind_colors.js";
import { hostTheme, mix } from "../../canvas/theme.js";
import { PHASES } from "../../shell/scrubber_paint.js";

/** @typedef {import("../../scene/saved_memory_layers.js").Grouping} Grouping */
/** @typedef {import("../../canvas/size_cache_and_clip_canvas.js").Drawing} Drawing */

const LEFT = 58;
/** Height of the bands of forward and backward, with room for the label of the peak. */
const TOP = 36;
const RIGHT = 14;
const AXIS_HEIGHT = 22;
/** Below this width the legend is below the plot, in two columns. */
const NARROW = 560;
const LEGEND_ROW = 15;

export const ALL = "all memory";

/** @type {["leaf" | "backward" | "saved" | "text3", number][]} the hue of each, and its share */
const HUES = [
  ["leaf", 0.75],
  ["leaf", 0.35],
  ["backward", 0.7],
  ["saved", 0.7],
  ["text3", 0.45],
];

/**
 * @param {typeof ORDER[number]} kind
 * @returns {string} its color in CSS
 */
export const fillOfAll = (kind) => {
  const [hue, share] = HUES[ORDER.indexOf(kind)];
  return `color-mix(in srgb, var(--${hue}) ${100 * share}%, var(--surface))`;
};

/** @param {string} kind of all memory */
export const kindOfAll = (kind) => (kind === "saved" ? "saved tensors" : kind.replace("_", " "));

/** The end of a module's path, which tells blocks apart: "h.3" of "transformer.h.3". */
const shortName = (/** @type {string} */ label) => label.replace(/^.*\.([^.]+\.\d+)$/, "$1");

export class StackedMemory {
  #legendWidth = 0;
  /** Of a legend below the plot. */
  #legendHeight = 0;

  /**
   * @param {import("../../shared_view_state.js").Store} store
   * @param {() => import("../../canvas/theme.js").Palette} palette
   */
  constructor(store, palette) {
    this.store = store;
    this.palette = palette;
    /** @type {Grouping} */
    this.grouping = store.scene.ribbons.length ? "kind" : "module";
    this.times = this.saved = changeTimes(store);
    /** @type {import("../../scene/saved_memory_layers.js").Layer[]} */
    this.layers = [];
    /** @type {import("../../scene/predict_memory.js").Curve | null} what a choice would hold */
    this.predicted = null;
    this.canvas = chartCanvas();
    this.element = h("div", "agv-chart", this.canvas);
    this.kept = new KeptDrawing(this.canvas);
    this.group(this.grouping);
    listen(this.canvas, "click", (event) => this.#click(event.offsetX, event.offsetY));
    this.resizer = onResize(this.element, () => this.draw());
    store.subscribe(["time", "selected", "view", "step"], (change) => this.draw(change === "time"));
  }

  destroy() {
    this.resizer.disconnect();
  }

  /** @param {Grouping} grouping */
  group(grouping) {
    this.grouping = grouping;
    this.times = this.isAll ? this.store.scene.live_points.map((each) => each.time_ns) : this.saved;
    this.layers = this.isAll
      ? allLayers(this.store.scene)
      : stackLayers(this.store, this.times, grouping);
    this.draw();
  }

  get isAll() {
    return this.grouping === ALL;
  }

  /** @param {import("../../scene/predict_memory.js").Curve | null} curve null without a choice */
  predict(curve) {
    this.predicted = curve && atTimes(this.store.scene, curve);
    this.draw();
  }

  /** @returns {[start: number, end: number]} of the step that is shown, or of the recording */
  get #range() {
    const { scene, step } = this.store;
    const chosen = scene.steps[step];
    if (chosen) return [chosen.start_ns, chosen.end_ns];
    // What initializes parameters before the first forward holds nothing.
    const forward = scene.spans.find(({ kind }) => kind === "forward")?.start_ns ?? 0;
    const held = this.times.find((time) => time > 0) ?? 0;
    // After the last phase and the last change, all is held as before.
    const last = scene.spans.reduce(
      (end, span) => (PHASES.includes(span.kind) ? Math.max(end, span.end_ns) : end),
      this.times.at(-2) ?? 0,
    );
    return [Math.min(forward, held), last];
  }

  /** @returns {{nbytes: number, time: number}} */
  get #peak() {
    const [start_ns, end_ns] = this.#range;
    if (this.isAll) return livePeak(this.store.scene, start_ns, end_ns);
    return peakIn(this.store.scene, { start_ns, end_ns });
  }

  /** @returns {string | null} label of the layer that holds the selection */
  #selectedLayer() {
    const { selected, scene } = this.store;
    if (this.isAll) return null;
    if (selected?.kind === "storage") {
      const { storage_id } = scene.storages[selected.index];
      const counted = scene.counted_storages.find((each) => each.storage_id === storage_id);
      return counted ? GROUPINGS[this.grouping](counted, scene) : null;
    }
    if (selected?.kind === "node" && this.grouping === "module") {
      return blockPrefix(scene.nodes[selected.index].module);
    }
    return null;
  }

  /** @param {boolean} [isSame] whether only the replayed time is another one */
  draw(isSame = false) {
    const isNarrow = this.element.clientWidth < NARROW;
    this.#legendHeight = isNarrow ? LEGEND_ROW * Math.ceil(this.layers.length / 2) : 0;
    this.element.style.minHeight = isNarrow ? `${200 + this.#legendHeight}px` : "";
    const paint = (/** @type {Drawing} */ drawing) => this.#paint(drawing);
    this.kept.draw(this.palette(), isSame, paint, (drawing) => this.#paintTime(drawing));
  }

  /**
   * @param {number} width of the canvas
   * @returns {(time: number) => number} x
   */
  #xOf(width) {
    const axis = timeAxis(this.store.sceneIndex, "events");
    const [from, to] = this.#range.map(axis.positionOf);
    const room = width - LEFT - this.#legendWidth;
    return (time) => LEFT + ((axis.positionOf(time) - from) / (to - from || 1)) * room;
  }

  /** @param {Drawing} drawing */
  #paintTime({ pen: { ctx, palette }, width, height }) {
    if (this.store.time === null) return;
    ctx.fillStyle = palette.text;
    const x = Math.round(this.#xOf(width)(Math.min(this.store.time, this.#range[1])));
    ctx.fillRect(x, 20, 1.4, height - this.#legendHeight - AXIS_HEIGHT - 20);
  }

  /** @param {Drawing} drawing */
  #paint({ pen, width, height }) {
    const { ctx, palette } = pen;
    const { scene, sceneIndex } = this.store;
    const range = this.#range;
    const bottom = height - this.#legendHeight - AXIS_HEIGHT;
    const peak = this.#peak;
    const older = this.isAll ? 0 : scene.summary.older_nbytes;
    const atPeak = this.layers.map(({ values }) => values[lastAt(this.times, peak.time)] ?? 0);
    this.atPeak = atPeak;
    const longest = this.layers.map(({ label }, at) =>
      widthOf(pen, `${shortName(label)} ${formatBytes(atPeak[at])}`, 9.5, 600),
    );
    this.#legendWidth =
      width < NARROW ? RIGHT : Math.min(0.4 * (width - LEFT), Math.max(0, ...longest) + 44);
    const predicted = this.isAll ? [] : (this.predicted ?? []);
    const most = Math.max(1, ...predicted.map(({ nbytes }) => nbytes));
    const top = Math.max(most, peak.nbytes + older);
    const axis = timeAxis(sceneIndex, "events");
    const x = this.#xOf(width);
    const y = (/** @type {number} */ nbytes) => bottom - (nbytes / top) * (bottom - TOP);
    const right = width - this.#legendWidth;
    this.canvas.setAttribute("aria-label", this.#summary());
    const plot = { left: LEFT, top: 0, right, bottom: bottom + 1 };
    clipped(pen, plot, () => paintPhases(pen, x, LEFT, scene.spans, 20, bottom));
    for (const nbytes of ticks(0, top, 4)) {
      fillBox(ctx, palette.line, LEFT, Math.round(y(nbytes)), right - LEFT, 1);
      const style = /** @type {const} */ ({ size: 9.5, color: palette.text2, align: "right" });
      write(pen, formatBytes(nbytes), LEFT - 6, y(nbytes), style);
    }
    paintTimes(pen, x, range, bottom + AXIS_HEIGHT / 2, null, axis);
    clipped(pen, plot, () => {
      this.#paintLayers(pen, x, y);
      if (predicted.length) this.#paintPredicted(pen, x, y, predicted);
      const bytes = peak.nbytes + older;
      const color = this.isAll ? palette.text : palette.saved;
      paintPeak(pen, x(peak.time), y(bytes), LEFT, right, color, formatBytes(bytes));
    });
    this.#paintLegend(pen);
  }

  /**
   * @param {import("../../canvas/text_fitted_to_width.js").Pen} pen
   * @param {(time: number) => number} x
   * @param {(nbytes: number) => number} y
   * @param {import("../../scene/predict_memory.js").Curve} curve over times
   */
  #paintPredicted(pen, x, y, curve) {
    const { ctx, palette } = pen;
    const [start, end] = this.#range;
    const inside = curve.filter(({ time_ns: time }) => time >= start && time <= end);
    const highest = inside.reduce((a, b) => (b.nbytes > a.nbytes ? b : a), {
      time_ns: start,
      nbytes: 0,
    });
    traceSteps(ctx, curve, x, y, [start, end]);
    setStroke(ctx, palette.surface, 4);
    ctx.stroke();
    setStroke(ctx, palette.recompute, 1.8);
    ctx.stroke();
    const right = x(end);
    const label = `predicted ${formatBytes(highest.nbytes)}`;
    paintPeak(pen, x(highest.time_ns), y(highest.nbytes), LEFT, right, palette.recompute, label);
  }

  /**
   * Paint the layers in tints of one hue, from the lightest on the bottom; the selected one is darker.
   *
   * @param {import("../../canvas/text_fitted_to_width.js").Pen} pen
   * @param {(time: number) => number} x
   * @param {(nbytes: number) => number} y
   */
  #paintLayers({ ctx, palette }, x, y) {
    const below = this.times.map(() => 0);
    const selected = this.#selectedLayer();
    this.layers.forEach((layer, index) => {
      ctx.beginPath();
      this.times.forEach((time, at) => {
        if (at) ctx.lineTo(x(time), y(below[at - 1] + layer.values[at - 1]));
        ctx.lineTo(x(time), y(below[at] + layer.values[at]));
      });
      for (let at = this.times.length - 1; at >= 0; at--) {
        ctx.lineTo(x(this.times[at]), y(below[at]));
        if (at) ctx.lineTo(x(this.times[at]), y(below[at - 1]));
      }
      ctx.closePath();
      ctx.fillStyle = this.#tint(palette, index, layer.label === selected);
      ctx.fill();
      layer.values.forEach((value, at) => (below[at] += value));
    });
  }

  /**
   * @param {import("../../canvas/theme.js").Palette} palette
   * @param {number} index of a layer
   * @param {boolean} on whether it is selected
   * @returns {string}
   */
  #tint(palette, index, on) {
    if (this.isAll) return mix(palette[HUES[index][0]], palette.surface, HUES[index][1]);
    const hue = kindHue(this.store.scene, this.layers[index].label, hostTheme());
    if (hue) return mix(hue, palette.surface, on ? 1 : 0.8);
    const share = 0.16 + (0.46 * index) / Math.max(1, this.layers.length - 1);
    return mix(palette.saved, palette.surface, on ? 0.9 : share);
  }

  /**
   * List the layers in their order beside the plot or below it, each with its bytes at the peak.
   *
   * @param {import("../../canvas/text_fitted_to_width.js").Pen} pen
   */
  #paintLegend(pen) {
    const { palette } = pen;
    const selected = this.#selectedLayer();
    this.layers.forEach(({ label }, at) => {
      const on = label === selected;
      const { x, y, end, step } = this.#entry(at);
      if (step < 11 && at % 2 && !on) return; // every other label fits
      fillBox(pen.ctx, this.#tint(palette, at, on), x, y - 5, 8, 10);
      const style = { size: 9.5, color: on ? palette.text : palette.text2, weight: on ? 600 : 400 };
      const bytes = this.atPeak?.[at] ? formatBytes(this.atPeak[at]) : "0";
      write(pen, bytes, end, y, { ...style, align: "right" });
      write(pen, shortName(label), x + 13, y, {
        ...style,
        room: end - x - 21 - widthOf(pen, bytes, 9.5),
      });
    });
  }

  /**
   * @param {number} at index of a layer
   * @returns {{x: number, end: number, y: number, step: number}} its place in the legend, which ends
   *   where the plot does, or is below it
   */
  #entry(at) {
    const { clientWidth: width, clientHeight: height } = this.element;
    const { length } = this.layers;
    if (this.#legendHeight) {
      const row = length - 1 - at;
      const half = width / 2 - RIGHT;
      const x = RIGHT + (row % 2) * (half + 6);
      const y = height - this.#legendHeight + ((row >> 1) + 0.5) * LEGEND_ROW;
      return { x, end: x + half - 6, y, step: LEGEND_ROW };
    }
    const step = Math.min(17, (height - AXIS_HEIGHT - TOP) / length);
    const y = height - AXIS_HEIGHT - (at + 0.5) * step;
    return { x: width - this.#legendWidth + 10, end: width - 10, y, step };
  }

  /** @returns {string} */
  #summary() {
    const largest = [...this.layers].sort((a, b) => b.peak - a.peak)[0];
    return largest
      ? `${this.isAll ? "All" : "Saved"} memory by ${this.grouping}; most by ${largest.label}, ${formatBytes(largest.peak)}`
      : "No tensor was saved";
  }

  /**
   * Select the largest storage of the layer whose label is clicked; replay the time of a click
   * on the plot.
   *
   * @param {number} offsetX
   * @param {number} offsetY
   */
  #click(offsetX, offsetY) {
    const layer = this.layers.find((_, at) => {
      const { x, end, y, step } = this.#entry(at);
      return offsetX >= x - 10 && offsetX <= end + 10 && Math.abs(offsetY - y) <= step / 2;
    });
    const { clientWidth, clientHeight } = this.element;
    const share = (offsetX - LEFT) / (clientWidth - LEFT - this.#legendWidth);
    if (!layer) {
      if (offsetY > clientHeight - this.#legendHeight) return;
      const { positionOf, timeAt } = timeAxis(this.store.sceneIndex, "events");
      const [from, to] = this.#range.map(positionOf);
      if (share >= 0 && share <= 1) this.store.set("time", timeAt(from + share * (to - from)));
      return;
    }
    if (this.isAll) return;
    const { scene, sceneIndex } = this.store;
    const storages = scene.counted_storages
      .filter((storage) => GROUPINGS[this.grouping](storage, scene) === layer.label)
      .sort((a, b) => b.nbytes - a.nbytes);
    const index = storages.length ? sceneIndex.storageOf.get(storages[0].storage_id) : undefined;
    if (index !== undefined) this.store.set("selected", { kind: "storage", index });
  }
}

/**
 * @param {import("../../types.js").Scene} scene
 * @returns {import("../../scene/saved_memory_layers.js").Layer[]} of all memory, from the bottom
 */
function allLayers({ live_points: points }) {
  return ORDER.map((kind) => {
    const values = points.map((each) => each[kind]);
    return { label: kindOfAll(kind), values, peak: Math.max(0, ...values), first: 0 };
  });
}

/**
 * Mark the highest point of a curve.
 *
 * @param {import("../../canvas/text_fitted_to_width.js").Pen} pen
 * @param {number} x
 * @param {number} y
 * @param {number} left of the plot
 * @param {number} right of the plot
 * @param {string} color
 * @param {string} label
 */
function paintPeak(pen, x, y, left, right, color, label) {
  const { ctx } = pen;
  ctx.fillStyle = color;
  ctx.beginPath();
  ctx.arc(x, y, 3, 0, 2 * Math.PI);
  ctx.fill();
  const width = widthOf(pen, label, 10, 600);
  const at = x + 8 + width > right ? x - 8 - width : x + 8;
  const style = /** @type {const} */ ({ size: 10, weight: 600, color });
  paintText(pen, label, Math.max(left + 4, at), y - 7, style);
}

/**
 * Return a curve over event numbers as a curve over times.
 *
 * @param {import("../../types.js").Scene} scene whose curve has both
 * @param {import("../../scene/predict_memory.js").Curve} curve
 * @returns {import("../../scene/predict_memory.js").Curve}
 */
function atTimes({ memory }, curve) {
  const points = [...memory].filter(({ seq }) => seq >= 0);
  const seqs = points.map(({ seq }) => seq);
  return curve.map(({ time_ns: seq, nbytes }) => {
    const at = Math.max(0, lastAt(seqs, seq));
    const [here, next] = [points[at], points[at + 1]];
    if (!here) return { time_ns: 0, nbytes };
    const share = next ? (seq - here.seq) / (next.seq - here.seq || 1) : 0;
    const length = next ? next.time_ns - here.time_ns : 0;
    return { time_ns: here.time_ns + Math.max(0, share) * length, nbytes };
  });
}
