// @ts-check
/** Saved memory over time as stacked layers: by module, kind of node or source line. */

import { KeptDrawing, paintTimes, ticks } from "../../canvas/chart_parts.js";
import { h, listen } from "../../dom.js";
import { blockPrefix, formatBytes } from "../../scene/format.js";
import { GROUPINGS, changeTimes, stackLayers } from "../../scene/memory_layers.js";
import { proportionalAxis } from "../../scene/time_axis.js";
import { widthOf, write } from "../../canvas/text.js";
import { kindHue } from "../../scene/fold.js";
import { hostTheme, mix } from "../../canvas/theme.js";

/** @typedef {import("../../scene/memory_layers.js").Grouping} Grouping */
/** @typedef {import("../../canvas/chart_parts.js").Drawing} Drawing */

const LEFT = 58;
const TOP = 12;
const AXIS_HEIGHT = 22;

/** The end of a module's path, which tells blocks apart: "h.3" of "transformer.h.3". */
const shortName = (/** @type {string} */ label) => label.replace(/^.*\.([^.]+\.\d+)$/, "$1");

export class StackedMemory {
  /**
   * @param {import("../../store.js").Store} store
   * @param {() => import("../../canvas/theme.js").Palette} palette
   */
  constructor(store, palette) {
    this.store = store;
    this.palette = palette;
    /** @type {Grouping} */
    this.grouping = store.scene.ribbons.length ? "kind" : "module";
    this.times = changeTimes(store);
    this.layers = stackLayers(store, this.times, this.grouping);
    this.legendWidth = 0;
    this.canvas = h("canvas", { class: "agv-chart-canvas", attrs: { role: "img" } });
    this.element = h("div", "agv-chart", this.canvas);
    this.kept = new KeptDrawing(this.canvas);
    listen(this.canvas, "click", (event) => this.#click(event.offsetX, event.offsetY));
    this.resizer = new ResizeObserver(() => this.draw());
    this.resizer.observe(this.element);
    store.subscribe(["time", "selected", "view"], (change) => this.draw(change === "time"));
  }

  destroy() {
    this.resizer.disconnect();
  }

  /** @param {Grouping} grouping */
  group(grouping) {
    this.grouping = grouping;
    this.layers = stackLayers(this.store, this.times, grouping);
    this.draw();
  }

  /** @returns {string | null} label of the layer that holds the selection */
  #selectedLayer() {
    const { selected, scene } = this.store;
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
    const paint = (/** @type {Drawing} */ drawing) => this.#paint(drawing);
    this.kept.draw(this.palette(), isSame, paint, (drawing) => this.#paintTime(drawing));
  }

  /**
   * @param {number} width of the canvas
   * @returns {(time: number) => number} x
   */
  #xOf(width) {
    const { end } = this.store.sceneIndex;
    const axis = proportionalAxis(this.store.sceneIndex);
    const length = axis.positionOf(end);
    return (time) => LEFT + (axis.positionOf(time) / length) * (width - LEFT - this.legendWidth);
  }

  /** @param {Drawing} drawing */
  #paintTime({ pen: { ctx, palette }, width, height }) {
    if (this.store.time === null) return;
    ctx.fillStyle = palette.text;
    const x = Math.round(this.#xOf(width)(this.store.time));
    ctx.fillRect(x, TOP - 8, 1.4, height - AXIS_HEIGHT - TOP + 8);
  }

  /** @param {Drawing} drawing */
  #paint({ pen, width, height }) {
    const { ctx, palette } = pen;
    const { end } = this.store.sceneIndex;
    const bottom = height - AXIS_HEIGHT;
    const longest = this.layers.map(({ label, peak }) =>
      widthOf(pen, `${shortName(label)} ${formatBytes(peak)}`, 9.5, 600),
    );
    this.legendWidth = Math.min(0.55 * (width - LEFT), Math.max(0, ...longest) + 44);
    const sums = this.times.map((_, at) => this.layers.reduce((sum, l) => sum + l.values[at], 0));
    const top = Math.max(1, ...sums);
    const axis = proportionalAxis(this.store.sceneIndex);
    const x = this.#xOf(width);
    const y = (/** @type {number} */ nbytes) => bottom - (nbytes / top) * (bottom - TOP);
    this.canvas.setAttribute("aria-label", this.#summary());
    for (const nbytes of ticks(0, top, 4)) {
      ctx.fillStyle = palette.line;
      ctx.fillRect(LEFT, Math.round(y(nbytes)), width - LEFT - this.legendWidth, 1);
      const style = /** @type {const} */ ({ size: 9.5, color: palette.text2, align: "right" });
      write(pen, formatBytes(nbytes), LEFT - 6, y(nbytes), style);
    }
    paintTimes(pen, x, [0, end], bottom + AXIS_HEIGHT / 2, null, axis);
    this.#paintLayers(pen, x, y);
    this.#paintLegend(pen, width);
  }

  /**
   * Paint the layers in tints of one hue, from the lightest on the bottom; the selected one is darker.
   *
   * @param {import("../../canvas/text.js").Pen} pen
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
    const hue = kindHue(this.store.scene, this.layers[index].label, hostTheme());
    if (hue) return mix(hue, palette.surface, on ? 1 : 0.8);
    const share = 0.16 + (0.46 * index) / Math.max(1, this.layers.length - 1);
    return mix(palette.saved, palette.surface, on ? 0.9 : share);
  }

  /**
   * List the layers in their order beside the plot, each with the most bytes that it has.
   *
   * @param {import("../../canvas/text.js").Pen} pen
   * @param {number} width of the canvas
   */
  #paintLegend(pen, width) {
    const { palette } = pen;
    const selected = this.#selectedLayer();
    const step = this.#legendStep();
    const x = width - this.legendWidth + 10;
    this.layers.forEach(({ label, peak }, at) => {
      const on = label === selected;
      if (step < 11 && at % 2 && !on) return; // every other label fits
      const y = this.#legendTop() + (this.layers.length - 1 - at + 0.5) * step;
      pen.ctx.fillStyle = this.#tint(palette, at, on);
      pen.ctx.fillRect(x, y - 5, 8, 10);
      const style = { size: 9.5, color: on ? palette.text : palette.text2, weight: on ? 600 : 400 };
      const bytes = formatBytes(peak);
      const end = width - 10;
      write(pen, bytes, end, y, { ...style, align: "right" });
      write(pen, shortName(label), x + 13, y, {
        ...style,
        room: end - x - 21 - widthOf(pen, bytes, 9.5),
      });
    });
  }

  /** @returns {number} height of a row of the legend */
  #legendStep() {
    const holder = /** @type {HTMLElement} */ (this.canvas.parentElement);
    const rows = Math.max(1, this.layers.length);
    return Math.min(15, (holder.clientHeight - AXIS_HEIGHT - TOP) / rows);
  }

  /** @returns {number} top of the legend, which ends where the plot does */
  #legendTop() {
    const holder = /** @type {HTMLElement} */ (this.canvas.parentElement);
    return holder.clientHeight - AXIS_HEIGHT - this.layers.length * this.#legendStep();
  }

  /** @returns {string} */
  #summary() {
    const largest = [...this.layers].sort((a, b) => b.peak - a.peak)[0];
    return largest
      ? `Saved memory by ${this.grouping}; most by ${largest.label}, ${formatBytes(largest.peak)}`
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
    const holder = /** @type {HTMLElement} */ (this.canvas.parentElement);
    const onLabel = offsetX > holder.clientWidth - this.legendWidth;
    const at = Math.floor((offsetY - this.#legendTop()) / this.#legendStep());
    const share = (offsetX - LEFT) / (holder.clientWidth - LEFT - this.legendWidth);
    if (!onLabel) {
      const { end } = this.store.sceneIndex;
      const { positionOf, timeAt } = proportionalAxis(this.store.sceneIndex);
      if (share >= 0 && share <= 1) this.store.set("time", timeAt(share * positionOf(end)));
      return;
    }
    const layer = this.layers[this.layers.length - 1 - at];
    const { scene, sceneIndex } = this.store;
    const storages = scene.counted_storages
      .filter((storage) => layer && GROUPINGS[this.grouping](storage, scene) === layer.label)
      .sort((a, b) => b.nbytes - a.nbytes);
    const index = storages.length ? sceneIndex.storageOf.get(storages[0].storage_id) : undefined;
    if (index !== undefined) this.store.set("selected", { kind: "storage", index });
  }
}
