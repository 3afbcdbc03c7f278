// @ts-check
/** Lifelines: a row for each storage, with markers where it is saved, written, unpacked and released. */

import { clipped, paintTimes, paintTorn, startDrawing } from "../../canvas/chart_parts.js";
import { h, listen, onArrows } from "../../dom.js";
import { formatBytes } from "../../scene/format.js";
import { describeEvent, paintVersionMismatch, paintEventMarker } from "./event_markers.js";
import { paintText, widthOf, write } from "../../canvas/text.js";
import { paintPhases } from "./phase_bands.js";
import { sameItem } from "../../store.js";
import { mix } from "../../canvas/theme.js";
import { TimeWindow } from "../../shell/time_window.js";
import { placeTooltip } from "../../shell/place_tooltip.js";

/** @typedef {import("../../canvas/text.js").Pen} Pen */
/** @typedef {import("../../types.js").SceneStorage} SceneStorage */

const ROW_HEIGHT = 26;
const HEAD_HEIGHT = 26;
const AXIS_HEIGHT = 22;
const RIGHT = 24;

/**
 * @param {SceneStorage} storage
 * @returns {boolean} whether it was written since its save
 */
const isHarmed = ({ state }) => state === "broken" || state === "stale";

export class Lifelines {
  /**
   * @param {import("../../store.js").Store} store
   * @param {() => import("../../canvas/theme.js").Palette} palette
   */
  constructor(store, palette) {
    this.store = store;
    this.palette = palette;
    /** @type {SceneStorage[]} */
    this.rows = [...store.scene.storages].sort(
      (a, b) => +isHarmed(b) - +isHarmed(a) || b.nbytes - a.nbytes,
    );
    this.largest = this.rows.reduce((most, { nbytes }) => Math.max(most, nbytes), 1);
    this.drawn = false;
    this.canvas = h("canvas", {
      class: "agv-chart-canvas",
      attrs: { role: "img", "aria-label": "Lifelines of saved tensors; the table lists the same" },
    });
    this.tooltip = h("div", "agv-tooltip agv-float");
    this.tooltip.hidden = true;
    this.spacer = h("div", "agv-lifelines-rows");
    this.scroller = h(
      "div",
      {
        class: "agv-lifelines-scroll",
        attrs: { role: "group", tabindex: "0", "aria-label": "Lifelines" },
      },
      this.spacer,
    );
    this.element = h("div", "agv-lifelines", this.canvas, this.scroller, this.tooltip);
    this.spacer.style.height = `${this.rows.length * ROW_HEIGHT}px`;
    this.rowsHeight = HEAD_HEIGHT + this.rows.length * ROW_HEIGHT + AXIS_HEIGHT;
    listen(this.scroller, "scroll", () => this.draw());
    listen(this.scroller, "click", (event) => this.#click(event));
    listen(this.scroller, "pointermove", (event) => this.#hover(event));
    listen(this.scroller, "pointerleave", () => (this.tooltip.hidden = true));
    onArrows(this.scroller, (step) => this.#move(step));
    const plot = () => {
      const left = this.#left();
      return { left, width: Math.max(1, this.element.clientWidth - left - RIGHT) };
    };
    this.window = new TimeWindow(store, plot, () => this.draw(), "events");
    this.window.listen(this.scroller);
    this.resizer = new ResizeObserver(() => this.draw());
    this.resizer.observe(this.element);
    store.subscribe(["matches"], () => this.draw());
    store.subscribe(["time", "selected", "view"], (change) => {
      // The details of the selection may change the size of this view.
      if (change === "selected") requestAnimationFrame(() => this.#scrollToSelected());
      this.draw();
    });
  }

  destroy() {
    this.resizer.disconnect();
  }

  /** @returns {number} x at which the lifelines begin */
  #left() {
    const { clientWidth } = this.element;
    return clientWidth < 760 ? 150 : Math.min(330, Math.max(240, clientWidth * 0.3));
  }

  /**
   * @param {number} time
   * @returns {number}
   */
  #x(time) {
    return this.window.x(time);
  }

  /**
   * Scroll to the first row whose unpack failed, and zoom to its events.
   *
   * @returns {boolean} whether that drew the view
   */
  #showBroken() {
    const at = this.rows.findIndex((row) => row.state === "broken");
    if (at < 0) return false;
    const rows = Math.floor(this.scroller.clientHeight / ROW_HEIGHT);
    const above = Math.max(0, Math.min(3, rows - 2)); // rows before it that are visible, too
    if (at > above) this.scroller.scrollTop = (at - above) * ROW_HEIGHT;
    const events = this.store.sceneIndex.storageEvents[this.rows[at].index];
    if (events.length < 2) return false;
    this.window.show(events[0].time_ns, events[events.length - 1].time_ns);
    return true;
  }

  draw() {
    const drawing = startDrawing(this.canvas, this.palette());
    if (!drawing) return;
    if (!this.drawn) {
      this.drawn = true; // showing draws again
      if (this.#showBroken()) return;
    }
    this.paint(drawing);
  }

  /** @param {import("../../canvas/chart_parts.js").Drawing} drawing */
  paint({ pen, width, height }) {
    const { scrollTop } = this.scroller;
    const x = (/** @type {number} */ time) => this.#x(time);
    const bottom = height - AXIS_HEIGHT;
    const plot = { left: this.#left() - 3, top: 0, right: width, bottom };
    clipped(pen, plot, () => {
      paintPhases(pen, x, plot.left, this.store.scene.spans, HEAD_HEIGHT, bottom);
    });
    const first = Math.floor(scrollTop / ROW_HEIGHT);
    const last = Math.min(
      this.rows.length,
      first + Math.ceil((bottom - HEAD_HEIGHT) / ROW_HEIGHT) + 1,
    );
    clipped(pen, { left: 0, top: HEAD_HEIGHT, right: width, bottom }, () => {
      for (let at = first; at < last; at++) {
        this.#paintRow(pen, this.rows[at], HEAD_HEIGHT + at * ROW_HEIGHT - scrollTop, width);
      }
    });
    const { end } = this.store.sceneIndex;
    paintTimes(pen, x, this.window.view, bottom + AXIS_HEIGHT / 2, null, this.window.axis);
    if (this.store.scene.summary.torn) {
      paintTorn(pen, { left: x(end), top: HEAD_HEIGHT, right: width, bottom });
    }
    this.#paintTime(pen, bottom);
  }

  /**
   * @param {Pen} pen
   * @param {SceneStorage} storage
   * @param {number} top
   * @param {number} width
   */
  #paintRow(pen, storage, top, width) {
    const { ctx, palette } = pen;
    const middle = top + ROW_HEIGHT / 2;
    const broken = storage.state === "broken";
    const { related, matches } = this.store;
    const selected = related.storages.has(storage.index) || !!matches?.has(storage.node);
    if (broken || selected) {
      const hue = broken ? palette.mutation : palette.backward;
      ctx.fillStyle = `${hue}${selected ? "24" : "14"}`;
      ctx.fillRect(0, top, width, ROW_HEIGHT);
      ctx.fillStyle = hue;
      ctx.fillRect(0, top, 2.5, ROW_HEIGHT);
    }
    ctx.fillStyle = palette.line;
    ctx.fillRect(0, top + ROW_HEIGHT - 1, width, 1);
    const left = this.#left();
    const twoColumns = left > 200;
    const nameWidth = twoColumns ? left * 0.4 : left - 70;
    const color = broken || storage.state === "stale" ? palette.mutation : palette.text;
    write(pen, storage.name, 12, middle, { size: 11.5, weight: 600, color, room: nameWidth - 16 });
    if (twoColumns) {
      const slot = storage.slots[0] ?? "";
      const room = left - 66 - nameWidth;
      const parts = storage.module.split(".");
      const forms = parts.map((_, at) => `${parts.slice(at).join(".")} · ${slot}`);
      const use = forms.find((form) => parts[0] && widthOf(pen, form, 10.5) <= room) ?? slot;
      write(pen, use, nameWidth, middle, { size: 10.5, color: palette.text2, room });
    }
    write(pen, formatBytes(storage.nbytes), left - 10, middle, {
      size: 11,
      color: palette.text2,
      align: "right",
    });
    const plot = { left: left - 3, top, right: width, bottom: top + ROW_HEIGHT };
    clipped(pen, plot, () => this.#paintLifeline(pen, storage, middle));
  }

  /**
   * @param {Pen} pen
   * @param {SceneStorage} storage
   * @param {number} middle
   */
  #paintLifeline(pen, storage, middle) {
    const { ctx, palette } = pen;
    const events = this.store.sceneIndex.storageEvents[storage.index];
    const recomputed = events[0]?.kind === "recomputed";
    const broken = storage.state === "broken";
    const plain = recomputed ? palette.recompute : palette.saved;
    const hue = broken || storage.state === "stale" ? palette.mutation : plain;
    for (let at = 0; at < storage.holds.length; at += 2) {
      const left = this.#x(storage.holds[at]);
      const open = storage.holds[at + 1] < 0;
      const right = this.#x(open ? this.store.sceneIndex.end : storage.holds[at + 1]);
      ctx.fillStyle = mix(hue, palette.surface, 0.4);
      const thick = 2 + 8 * Math.sqrt(storage.nbytes / this.largest);
      ctx.fillRect(left, middle - thick / 2, Math.max(2, right - left), thick);
      if (open) {
        ctx.fillStyle = palette.surface;
        for (const gap of [7, 3]) ctx.fillRect(right - gap, middle - 3.5, 2, 7);
      }
    }
    const versions = new Set(events.flatMap((each) => each.version ?? []));
    let free = -Infinity; // x from which no marker is painted yet
    const lastWrite = events.findLastIndex((each) => each.kind === "written");
    /** @type {[number, number]} */
    let room = [0, 0]; // the widest gap between two markers after the last write
    events.forEach((each, at) => {
      const x = this.#x(each.time_ns);
      if (at > lastWrite && x - 10 - free > room[1] - room[0]) room = [free, x - 10];
      free = paintEventMarker(pen, each, x, middle, plain, free, {
        isLast: at === events.length - 1,
        hasVersions: versions.size > 1,
      });
    });
    if (lastWrite < 0 && broken && events.length) {
      const text = "recomputed differently";
      const style = { size: 9.5, weight: 600, color: palette.mutation };
      const long = widthOf(pen, text, style.size, style.weight);
      const fits = free + 6 + long < this.element.clientWidth;
      const before = this.#x(events[events.length - 1].time_ns) - long - 14;
      if (fits || before > this.#left()) {
        paintText(pen, text, fits ? free + 6 : before, middle, style);
      }
    }
    if (lastWrite < 0 || !broken) return;
    paintVersionMismatch(pen, storage, events[lastWrite], room, middle);
  }

  /**
   * @param {Pen} pen
   * @param {number} bottom
   */
  #paintTime({ ctx, palette }, bottom) {
    if (this.store.time === null) return;
    const x = Math.round(this.#x(this.store.time)) + 0.5;
    ctx.fillStyle = `${palette.canvas}b0`;
    ctx.fillRect(x, HEAD_HEIGHT, this.#x(this.store.sceneIndex.end) - x + 6, bottom - HEAD_HEIGHT);
    ctx.strokeStyle = palette.text;
    ctx.lineWidth = 1.4;
    ctx.beginPath();
    ctx.moveTo(x, 2);
    ctx.lineTo(x, bottom);
    ctx.stroke();
  }

  /**
   * @param {{offsetY: number}} event on the spacer, whose y starts at the first row
   * @returns {SceneStorage | undefined}
   */
  #rowAt(event) {
    return this.rows[Math.floor(event.offsetY / ROW_HEIGHT)];
  }

  /** @param {MouseEvent} event */
  #click(event) {
    const storage = event.target === this.spacer ? this.#rowAt(event) : undefined;
    this.store.set("selected", storage ? { kind: "storage", index: storage.index } : null);
  }

  /** @param {1 | -1} step */
  #move(step) {
    const { selected } = this.store;
    const at = this.rows.findIndex((row) =>
      sameItem(selected, { kind: "storage", index: row.index }),
    );
    const next = this.rows[at < 0 ? 0 : at + step];
    if (next) this.store.set("selected", { kind: "storage", index: next.index });
  }

  /** @param {PointerEvent} event */
  #hover(event) {
    const storage = event.target === this.spacer ? this.#rowAt(event) : undefined;
    this.tooltip.hidden = !storage;
    if (!storage) return;
    const nearest = this.store.sceneIndex.storageEvents[storage.index]
      .map((each) => ({ each, distance: Math.abs(this.#x(each.time_ns) - event.offsetX) }))
      .sort((a, b) => a.distance - b.distance)[0];
    const lines = [`${storage.name} · ${storage.shape} ${storage.dtype}`];
    if (nearest && nearest.distance < 14) lines.push(describeEvent(nearest.each));
    else lines.push(...storage.slots.slice(0, 3));
    this.tooltip.replaceChildren(
      ...lines.map((text, at) => h("div", at ? "" : "agv-strong", text)),
    );
    const y = event.offsetY - this.scroller.scrollTop + HEAD_HEIGHT;
    const { clientWidth, clientHeight } = this.element;
    placeTooltip(this.tooltip, event.offsetX, y, clientWidth, clientHeight);
  }

  #scrollToSelected() {
    const { storages } = this.store.related;
    const top = this.rows.findIndex((row) => storages.has(row.index)) * ROW_HEIGHT;
    if (top < 0) return;
    const room = this.scroller.clientHeight - ROW_HEIGHT;
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    else if (top > this.scroller.scrollTop + room) this.scroller.scrollTop = top - room;
  }
}
