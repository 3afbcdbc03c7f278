// @ts-check
/** One row a storage: when it was saved, written, taken back and let go. */

import { paintTimes, paintTorn, startDrawing } from "../../canvas/charts.js";
import { clockOf } from "../../scene/time_axis.js";
import { h } from "../../dom.js";
import { formatBytes } from "../../scene/format.js";
import { momentWords, paintBreak, paintMoment } from "./event_markers.js";
import { write } from "../../canvas/text.js";
import { paintPhases } from "./phases.js";
import { sameItem } from "../../store.js";
import { mix } from "../../canvas/theme.js";
import { placeTooltip } from "../graph/tooltip.js";

/** @typedef {import("../../canvas/text.js").Pen} Pen */
/** @typedef {import("../../types.js").SceneStorage} SceneStorage */

const ROW = 26;
const HEAD = 26;
const AXIS = 22;
const RIGHT = 16;

export class Lifelines {
  /**
   * @param {import("../../store.js").Store} store
   * @param {() => import("../../canvas/theme.js").Palette} palette
   */
  constructor(store, palette) {
    this.store = store;
    this.palette = palette;
    /** @type {SceneStorage[]} */
    this.rows = store.scene.storages;
    this.seen = false;
    // What was before the first of all that is drawn would be empty.
    const first = store.scene.spans.reduce((least, span) => Math.min(least, span.start_ns), 1e18);
    this.start = first < 0.9 * store.atlas.end ? first * 0.97 : 0;
    this.canvas = h("canvas", {
      attrs: { role: "img", "aria-label": "Lifelines of saved tensors; the table lists the same" },
    });
    this.tooltip = h("div", { class: "agv-tooltip agv-float" });
    this.tooltip.hidden = true;
    this.spacer = h("div", { class: "agv-lives-rows" });
    this.scroller = h(
      "div",
      { class: "agv-lives-scroll", attrs: { tabindex: "0", "aria-label": "Lifelines" } },
      this.spacer,
    );
    this.element = h("div", { class: "agv-lives" }, this.canvas, this.scroller, this.tooltip);
    this.spacer.style.height = `${this.rows.length * ROW}px`;
    this.rowsHeight = HEAD + this.rows.length * ROW + AXIS;
    this.scroller.addEventListener("scroll", () => this.draw());
    this.scroller.addEventListener("click", (event) => this.#click(event));
    this.scroller.addEventListener("pointermove", (event) => this.#hover(event));
    this.scroller.addEventListener("pointerleave", () => (this.tooltip.hidden = true));
    this.scroller.addEventListener("keydown", (event) => this.#press(event));
    this.resizer = new ResizeObserver(() => this.draw());
    this.resizer.observe(this.element);
    store.subscribe((change) => {
      if (change === "selected") this.#follow();
      if (["time", "axis", "selected", "view"].includes(change)) this.draw();
    });
  }

  destroy() {
    this.resizer.disconnect();
  }

  /** @returns {number} where the lines begin */
  #left() {
    const { clientWidth } = this.element;
    return clientWidth < 620 ? 150 : Math.min(330, Math.max(240, clientWidth * 0.3));
  }

  /**
   * @param {number} time
   * @returns {number}
   */
  #x(time) {
    const left = this.#left();
    const room = this.element.clientWidth - left - RIGHT;
    const { at } = clockOf(this.store);
    const [first, last] = [at(this.start), at(this.store.atlas.end)];
    return left + (Math.max(0, at(time) - first) / (last - first)) * room;
  }

  /** Bring the first row into view that something is wrong with. */
  #lookAtBroken() {
    const at = this.rows.findIndex((row) => row.state === "broken");
    if (at > 3) this.scroller.scrollTop = (at - 3) * ROW;
  }

  draw() {
    const drawing = startDrawing(this.canvas, this.palette());
    if (!drawing) return;
    if (!this.seen) this.#lookAtBroken();
    this.seen = true;
    this.paint(drawing);
  }

  /** @param {{pen: Pen, width: number, height: number}} drawing */
  paint({ pen, width, height }) {
    const { scrollTop } = this.scroller;
    const x = (/** @type {number} */ time) => this.#x(time);
    const bottom = height - AXIS;
    paintPhases(pen, x, this.store.scene.spans, HEAD, bottom);
    pen.ctx.save();
    pen.ctx.beginPath();
    pen.ctx.rect(0, HEAD, width, bottom - HEAD);
    pen.ctx.clip();
    const first = Math.floor(scrollTop / ROW);
    const last = Math.min(this.rows.length, first + Math.ceil((bottom - HEAD) / ROW) + 1);
    for (let at = first; at < last; at++) {
      this.#paintRow(pen, this.rows[at], HEAD + at * ROW - scrollTop, width);
    }
    pen.ctx.restore();
    const { end } = this.store.atlas;
    paintTimes(pen, x, [this.start, end], bottom + AXIS / 2, null, clockOf(this.store));
    if (this.store.scene.summary.torn) {
      paintTorn(pen, { left: x(end), top: HEAD, right: width, bottom });
    }
    this.#paintNow(pen, bottom);
  }

  /**
   * @param {Pen} pen
   * @param {SceneStorage} storage
   * @param {number} top
   * @param {number} width
   */
  #paintRow(pen, storage, top, width) {
    const { ctx, palette } = pen;
    const middle = top + ROW / 2;
    const broken = storage.state === "broken";
    const selected = sameItem(this.store.selected, { kind: "storage", index: storage.index });
    if (broken || selected) {
      const hue = broken ? palette.mutation : palette.backward;
      ctx.fillStyle = `${hue}${selected ? "24" : "14"}`;
      ctx.fillRect(0, top, width, ROW);
      ctx.fillStyle = hue;
      ctx.fillRect(0, top, 2.5, ROW);
    }
    ctx.fillStyle = palette.line;
    ctx.fillRect(0, top + ROW - 1, width, 1);
    const left = this.#left();
    const wide = left > 200;
    const names = wide ? left * 0.4 : left - 70;
    const color = broken ? palette.mutation : palette.text;
    write(pen, storage.name, 12, middle, { size: 11.5, weight: 600, color, room: names - 16 });
    if (wide) {
      const slot = storage.slots[0] ?? "";
      const words = storage.module ? `${storage.module} · ${slot}` : slot;
      write(pen, words, names, middle, {
        size: 10.5,
        color: palette.text2,
        room: left - 66 - names,
      });
    }
    write(pen, formatBytes(storage.nbytes), left - 10, middle, {
      size: 11,
      color: palette.text2,
      align: "right",
    });
    this.#paintLife(pen, storage, middle);
  }

  /**
   * @param {Pen} pen
   * @param {SceneStorage} storage
   * @param {number} middle
   */
  #paintLife(pen, storage, middle) {
    const { ctx, palette } = pen;
    const moments = this.store.atlas.moments[storage.index];
    const again = moments[0]?.kind === "recomputed";
    const broken = storage.state === "broken";
    const plain = again ? palette.recompute : palette.saved;
    const hue = broken ? palette.mutation : plain;
    for (let at = 0; at < storage.holds.length; at += 2) {
      const left = this.#x(storage.holds[at]);
      const open = storage.holds[at + 1] < 0;
      const right = this.#x(open ? this.store.atlas.end : storage.holds[at + 1]);
      ctx.fillStyle = mix(hue, palette.surface, 0.4);
      ctx.fillRect(left, middle - 2.5, Math.max(2, right - left), 5);
      if (open) {
        ctx.fillStyle = palette.surface;
        for (const gap of [7, 3]) ctx.fillRect(right - gap, middle - 3.5, 2, 7);
      }
    }
    let free = -Infinity; // a glyph that would cover the one before it steps aside
    const lastWrite = moments.findLastIndex((moment) => moment.kind === "written");
    /** @type {[number, number]} */
    let room = [0, 0]; // the widest between two glyphs after the last write
    moments.forEach((moment, at) => {
      const x = this.#x(moment.time_ns);
      if (at > lastWrite && x - 10 - free > room[1] - room[0]) room = [free, x - 10];
      free = paintMoment(pen, moment, x, middle, plain, free);
    });
    if (lastWrite < 0 || !broken) return;
    paintBreak(pen, storage, moments[lastWrite], room, middle);
  }

  /**
   * @param {Pen} pen
   * @param {number} bottom
   */
  #paintNow({ ctx, palette }, bottom) {
    if (this.store.time === null) return;
    const x = Math.round(this.#x(this.store.time)) + 0.5;
    ctx.fillStyle = `${palette.canvas}b0`;
    ctx.fillRect(x, HEAD, this.#x(this.store.atlas.end) - x + 6, bottom - HEAD);
    ctx.strokeStyle = palette.text;
    ctx.lineWidth = 1.4;
    ctx.beginPath();
    ctx.moveTo(x, 2);
    ctx.lineTo(x, bottom);
    ctx.stroke();
  }

  /**
   * @param {{offsetY: number}} event on the spacer: its y counts from the first row
   * @returns {SceneStorage | undefined}
   */
  #rowAt(event) {
    return this.rows[Math.floor(event.offsetY / ROW)];
  }

  /** @param {MouseEvent} event */
  #click(event) {
    const storage = event.target === this.spacer ? this.#rowAt(event) : undefined;
    this.store.select(storage ? { kind: "storage", index: storage.index } : null);
  }

  /** @param {KeyboardEvent} event */
  #press(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const { selected } = this.store;
    const at = this.rows.findIndex((row) =>
      sameItem(selected, { kind: "storage", index: row.index }),
    );
    const next = this.rows[at < 0 ? 0 : at + step];
    if (next) this.store.select({ kind: "storage", index: next.index });
  }

  /** @param {PointerEvent} event */
  #hover(event) {
    const storage = event.target === this.spacer ? this.#rowAt(event) : undefined;
    this.tooltip.hidden = !storage;
    if (!storage) return;
    const near = this.store.atlas.moments[storage.index]
      .map((moment) => ({ moment, away: Math.abs(this.#x(moment.time_ns) - event.offsetX) }))
      .sort((a, b) => a.away - b.away)[0];
    const lines = [`${storage.name} · ${storage.shape} ${storage.dtype}`];
    if (near && near.away < 14) lines.push(momentWords(near.moment));
    else lines.push(...storage.slots.slice(0, 3));
    this.tooltip.replaceChildren(
      ...lines.map((text, at) => h("div", { text, class: at ? "" : "agv-strong" })),
    );
    const y = event.offsetY - this.scroller.scrollTop + HEAD;
    const { clientWidth, clientHeight } = this.element;
    placeTooltip(this.tooltip, event.offsetX, y, clientWidth, clientHeight);
  }

  #follow() {
    const { selected } = this.store;
    if (selected?.kind !== "storage") return;
    const top = this.rows.findIndex((row) => row.index === selected.index) * ROW;
    const room = this.scroller.clientHeight - ROW;
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    else if (top > this.scroller.scrollTop + room) this.scroller.scrollTop = top - room;
  }
}
