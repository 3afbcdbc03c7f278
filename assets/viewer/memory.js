// @ts-check
/** The bytes that backward keeps, over time, above what ran meanwhile. */

import { h } from "./dom.js";
import { formatBytes, formatDuration } from "./format.js";
import { mix } from "./theme.js";

/** @typedef {import("./types.js").SceneSpan} SceneSpan */
/** @typedef {import("./theme.js").Palette} Palette */

const LEFT = 92;
const RIGHT = 24;
const TOP = 44;
const STRIP = 18;
const GAP = 10;
const AXIS = 24;
const KINDS = /** @type {const} */ (["forward", "backward", "recompute"]);

export class Memory {
  /**
   * @param {import("./types.js").Scene} scene
   * @param {() => Palette} palette
   */
  constructor(scene, palette) {
    this.scene = scene;
    this.palette = palette;
    this.end = Math.max(scene.summary.end_ns, ...scene.memory.slice(-1).map((at) => at.time_ns), 1);
    this.peak = scene.memory.reduce(
      (best, point, at) => (point.nbytes > (scene.memory[best]?.nbytes ?? -1) ? at : best),
      -1,
    );
    this.strips = KINDS.filter((kind) => scene.spans.some((span) => span.kind === kind));
    this.canvas = h("canvas", { attrs: { role: "img", "aria-label": this.#words() } });
    this.readout = h("span", { class: "agv-muted" });
    this.element = h(
      "div",
      { class: "agv-memory" },
      h(
        "div",
        { class: "agv-view-head" },
        h("h3", { text: "Saved memory" }),
        h("span", { class: "agv-muted", text: this.#words() }),
        h("span", { class: "agv-end" }, this.readout),
      ),
      h("div", { class: "agv-memory-canvas" }, this.canvas),
    );
    this.canvas.addEventListener("pointermove", (event) => this.#read(event.offsetX));
    this.canvas.addEventListener("pointerleave", () => this.#read(-1));
    this.resizer = new ResizeObserver(() => this.draw());
    this.resizer.observe(this.element);
  }

  destroy() {
    this.resizer.disconnect();
  }

  /** @returns {string} */
  #words() {
    if (this.peak < 0) return "no tensor was saved";
    const { nbytes, time_ns } = this.scene.memory[this.peak];
    const after = formatDuration(time_ns);
    return `peak ${formatBytes(nbytes)} after ${after}, of ${formatDuration(this.end)}`;
  }

  /** @param {number} x in the canvas; negative where the pointer left */
  #read(x) {
    const time = ((x - LEFT) / Math.max(1, this.#plotWidth())) * this.end;
    const inside = x >= LEFT && time <= this.end;
    const nbytes = this.scene.memory.findLast((point) => point.time_ns <= time)?.nbytes ?? 0;
    this.readout.textContent = inside ? `${formatDuration(time)}: ${formatBytes(nbytes)}` : "";
    this.draw(inside ? x : undefined);
  }

  /** @returns {number} */
  #plotWidth() {
    return this.element.clientWidth - LEFT - RIGHT;
  }

  /** @param {number} [cursor] where the pointer is */
  draw(cursor) {
    const holder = /** @type {HTMLElement} */ (this.canvas.parentElement);
    const { clientWidth: width, clientHeight: height } = holder;
    if (!width) return;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    const ctx = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    ctx.scale(ratio, ratio);
    const palette = this.palette();
    const family = getComputedStyle(this.canvas).fontFamily;
    const strips = this.strips.length * (STRIP + GAP);
    const bottom = Math.max(TOP + 40, height - AXIS - strips);
    const x = (/** @type {number} */ time) => LEFT + (time / this.end) * this.#plotWidth();
    const pen = { ctx, palette, family, scale: 1 };
    this.#drawAxes(pen, x, bottom, height - AXIS);
    this.#drawCurve(pen, x, bottom);
    this.strips.forEach((kind, at) => {
      this.#drawStrip(pen, x, bottom + GAP + at * (STRIP + GAP), kind);
    });
    if (cursor !== undefined) {
      ctx.strokeStyle = palette.text3;
      ctx.lineWidth = 1;
      ctx.strokeRect(cursor, TOP - 8, 0, height - AXIS - TOP + 8);
    }
  }

  /**
   * @param {import("./paint_text.js").Pen} pen
   * @param {(time: number) => number} x
   * @param {number} bottom of the curve
   * @param {number} end of the strips
   */
  #drawAxes({ ctx, palette, family }, x, bottom, end) {
    const top = this.peak < 0 ? 0 : this.scene.memory[this.peak].nbytes;
    ctx.font = `10px ${family}`;
    ctx.textBaseline = "middle";
    ctx.lineWidth = 1;
    for (const nbytes of ticks(top, 4)) {
      const y = bottom - (nbytes / (top || 1)) * (bottom - TOP);
      ctx.strokeStyle = palette.line;
      ctx.beginPath();
      ctx.moveTo(LEFT, Math.round(y) + 0.5);
      ctx.lineTo(x(this.end), Math.round(y) + 0.5);
      ctx.stroke();
      ctx.fillStyle = palette.text2;
      ctx.textAlign = "right";
      ctx.fillText(formatBytes(nbytes), LEFT - 8, y);
    }
    const count = Math.max(2, Math.floor(this.#plotWidth() / 110));
    for (const time of ticks(this.end, count)) {
      ctx.textAlign = time === 0 ? "left" : "center";
      ctx.fillStyle = palette.text2;
      ctx.fillText(time ? formatDuration(time) : "0", x(time), end + AXIS / 2 + 2);
    }
  }

  /**
   * @param {import("./paint_text.js").Pen} pen
   * @param {(time: number) => number} x
   * @param {number} bottom
   */
  #drawCurve({ ctx, palette, family }, x, bottom) {
    if (this.peak < 0) return;
    const points = this.scene.memory;
    const top = points[this.peak].nbytes || 1;
    const y = (/** @type {number} */ nbytes) => bottom - (nbytes / top) * (bottom - TOP);
    ctx.beginPath();
    ctx.moveTo(x(0), bottom);
    let before = 0;
    for (const point of points) {
      ctx.lineTo(x(point.time_ns), y(before));
      ctx.lineTo(x(point.time_ns), y(point.nbytes));
      before = point.nbytes;
    }
    ctx.lineTo(x(this.end), y(before));
    ctx.strokeStyle = palette.saved;
    ctx.lineWidth = 1.6;
    ctx.lineJoin = "round";
    ctx.stroke();
    ctx.lineTo(x(this.end), bottom);
    ctx.closePath();
    ctx.fillStyle = `${palette.saved}29`;
    ctx.fill();
    const at = points[this.peak];
    ctx.fillStyle = palette.saved;
    ctx.beginPath();
    ctx.arc(x(at.time_ns), y(at.nbytes), 3.5, 0, 2 * Math.PI);
    ctx.fill();
    ctx.font = `600 11px ${family}`;
    ctx.textAlign = x(at.time_ns) > LEFT + this.#plotWidth() / 2 ? "right" : "left";
    const aside = ctx.textAlign === "right" ? -8 : 8;
    ctx.fillText(`peak ${formatBytes(at.nbytes)}`, x(at.time_ns) + aside, TOP - 14);
  }

  /**
   * @param {import("./paint_text.js").Pen} pen
   * @param {(time: number) => number} x
   * @param {number} y
   * @param {typeof KINDS[number]} kind
   */
  #drawStrip({ ctx, palette, family }, x, y, kind) {
    const hue = {
      forward: palette.text2,
      backward: palette.backward,
      recompute: palette.recompute,
    }[kind];
    ctx.font = `600 11px ${family}`;
    ctx.textBaseline = "middle";
    ctx.textAlign = "right";
    ctx.fillStyle = hue;
    ctx.fillText(kind, LEFT - 8, y + STRIP / 2);
    ctx.textAlign = "left";
    ctx.font = `10px ${family}`;
    for (const span of this.scene.spans) {
      if (span.kind !== kind) continue;
      const left = x(span.start_ns);
      const width = Math.max(1.5, x(span.end_ns) - left);
      const inset = Math.min(span.depth, 4) * 3;
      ctx.fillStyle = mix(hue, palette.surface, 0.25 + 0.12 * Math.min(span.depth, 4));
      ctx.fillRect(left, y + inset, width, STRIP - inset);
      const fits = span.label !== kind && ctx.measureText(span.label).width + 8 < width;
      if (fits && !inset) {
        ctx.fillStyle = palette.text;
        ctx.fillText(span.label, left + 4, y + STRIP / 2 + 0.5);
      }
    }
  }
}

/**
 * Round values from 0 to `top`.
 *
 * @param {number} top
 * @param {number} count about how many
 * @returns {number[]}
 */
function ticks(top, count) {
  if (top <= 0) return [0];
  const rough = top / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10);
  const values = [];
  for (let value = 0; value <= top; value += step) values.push(value);
  return values;
}
