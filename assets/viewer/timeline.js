// @ts-check
/** When what ran, over the bytes that were kept; an area of it added up. */

import { startDrawing } from "./chart.js";
import { h } from "./dom.js";
import { formatBytes, formatDuration } from "./format.js";
import { Sums } from "./sum_panel.js";
import { keptAt } from "./sums.js";
import { LEFT, RIGHT, barAt, heightOf, paintTracks } from "./timeline_paint.js";
import { tracksOf } from "./timeline_rows.js";
import { placeTooltip } from "./tooltip.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {[start: number, end: number]} Stretch */

const DRAG_FROM = 4;
/** @type {Record<string, string>} */
const KINDS = { mode: "switched" };

/**
 * @param {import("./timeline_rows.js").Bar} bar
 * @returns {string[]} how long it took, or when it was, and the line that began it
 */
function barWords({ kind, start, end, place }) {
  const lasted = `${KINDS[kind] ?? kind}, ${formatDuration(end - start)}`;
  return [start === end ? formatDuration(start) : lasted, place].filter(Boolean);
}

export class Timeline {
  /**
   * @param {Store} store
   * @param {() => import("./theme.js").Palette} palette
   */
  constructor(store, palette) {
    this.store = store;
    this.palette = palette;
    this.tracks = tracksOf(store.atlas);
    /** @type {Stretch} what is in view */
    this.view = [0, store.atlas.end];
    /** @type {Stretch | null} what is added up; all of it where null */
    this.chosen = null;
    this.frame = 0;
    this.canvas = h("canvas", { attrs: { role: "img", "aria-label": this.#words() } });
    this.spacer = h("div", { class: "agv-tracks" }, this.canvas);
    this.spacer.style.height = `${heightOf(this.tracks)}px`;
    this.scroller = h(
      "div",
      { class: "agv-tracks-scroll", attrs: { tabindex: "0", "aria-label": "Timeline" } },
      this.spacer,
    );
    this.tooltip = h("div", { class: "agv-tooltip agv-float" });
    this.tooltip.hidden = true;
    this.sums = new Sums(store);
    this.element = this.#frame();
    this.#listen();
    this.resizer = new ResizeObserver(() => this.draw());
    this.resizer.observe(this.element);
    store.subscribe((change) => {
      if (change === "time" || change === "view" || change === "selected") this.schedule();
    });
    this.sums.fill(this.chosen);
  }

  /** @returns {HTMLElement} */
  #frame() {
    const keys = ["W", "A", "S", "D"].map((key) => h("kbd", { text: key }));
    return h(
      "div",
      { class: "agv-timeline" },
      h(
        "section",
        { class: "agv-panel agv-panel-tracks" },
        h(
          "div",
          { class: "agv-view-head" },
          h("h3", { text: "Timeline" }),
          h("span", { class: "agv-muted agv-clamp", text: this.#words() }),
          h(
            "span",
            { class: "agv-end agv-muted agv-keys-hint" },
            "zoom, pan ",
            ...keys,
            " · drag an area to sum it",
          ),
        ),
        this.scroller,
        this.tooltip,
      ),
      ...this.sums.elements,
    );
  }

  /** @returns {string} */
  #words() {
    const { summary } = this.store.scene;
    const peak = summary.peak_nbytes ? `, peak ${formatBytes(summary.peak_nbytes)} saved` : "";
    return `${formatDuration(this.store.atlas.end)}${peak}`;
  }

  destroy() {
    cancelAnimationFrame(this.frame);
    this.resizer.disconnect();
  }

  schedule() {
    this.frame ||= requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.frame = 0;
    const drawing = startDrawing(this.canvas, this.palette());
    if (drawing) this.paint(drawing);
  }

  /** @param {{pen: import("./paint_text.js").Pen, width: number, height: number}} drawing */
  paint(drawing) {
    paintTracks(drawing, this.store, this.tracks, this.view, this.chosen);
  }

  #listen() {
    let from = -1;
    let moved = false;
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button || event.offsetX < LEFT) return;
      canvas.setPointerCapture(event.pointerId);
      from = event.offsetX;
      moved = false;
      this.tooltip.hidden = true;
    });
    canvas.addEventListener("pointermove", (event) => {
      if (from < 0) return this.#hover(event);
      moved ||= Math.abs(event.offsetX - from) >= DRAG_FROM;
      if (!moved) return;
      const times = [this.#timeAt(from), this.#timeAt(event.offsetX)].sort((a, b) => a - b);
      this.choose([times[0], times[1]]);
    });
    canvas.addEventListener("pointerup", (event) => {
      if (from >= 0 && !moved) this.#click(event);
      from = -1;
    });
    canvas.addEventListener("pointercancel", () => (from = -1));
    canvas.addEventListener("pointerleave", () => (this.tooltip.hidden = true));
    canvas.addEventListener("dblclick", (event) => this.#open(event));
    this.scroller.addEventListener("keydown", (event) => this.#press(event));
    this.scroller.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
  }

  /** @param {PointerEvent} event */
  #click(event) {
    const bar = barAt(this.tracks, this.view, this.#plotWidth(), event.offsetX, event.offsetY);
    if (bar && bar.ref >= 0 && (bar.kind === "node" || bar.kind === "accumulate")) {
      this.store.select({ kind: "node", index: bar.ref });
    } else if (this.chosen) this.choose(null);
    else this.store.setTime(this.#timeAt(event.offsetX));
  }

  /** @param {MouseEvent} event */
  #open(event) {
    const bar = barAt(this.tracks, this.view, this.#plotWidth(), event.offsetX, event.offsetY);
    if (bar) this.choose([bar.start, bar.end]);
  }

  /** @param {PointerEvent} event */
  #hover(event) {
    const bar = barAt(this.tracks, this.view, this.#plotWidth(), event.offsetX, event.offsetY);
    const inside = event.offsetX >= LEFT && event.offsetX <= LEFT + this.#plotWidth();
    this.tooltip.hidden = !inside;
    if (!inside) return;
    const time = this.#timeAt(event.offsetX);
    const kept = formatBytes(keptAt(this.store.scene, time));
    const lines = bar ? [bar.label || bar.kind, ...barWords(bar)] : [formatDuration(time)];
    lines.push(`${kept} kept`);
    this.tooltip.replaceChildren(
      ...lines.map((text, at) => h("div", { text, class: at ? "" : "agv-strong" })),
    );
    const { clientWidth, clientHeight } = this.element;
    const y = event.offsetY - this.scroller.scrollTop + 36;
    placeTooltip(this.tooltip, event.offsetX, y, clientWidth, clientHeight);
  }

  /** @param {KeyboardEvent} event */
  #press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = /** @type {Record<string, () => void>} */ ({
      w: () => this.zoom(0.7, LEFT + this.#plotWidth() / 2),
      s: () => this.zoom(1 / 0.7, LEFT + this.#plotWidth() / 2),
      a: () => this.pan(-0.15),
      d: () => this.pan(0.15),
      f: () => this.look([0, this.store.atlas.end]),
      Escape: () => this.choose(null),
    })[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  /** @param {WheelEvent} event */
  #wheel(event) {
    const inUse = document.activeElement === this.scroller || event.ctrlKey || event.metaKey;
    if (!inUse) return;
    event.preventDefault();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      this.pan((event.deltaX || event.deltaY) / 1000);
    } else this.zoom(Math.exp(event.deltaY * 0.0015), event.offsetX);
  }

  /** @returns {number} */
  #plotWidth() {
    return Math.max(1, this.spacer.clientWidth - LEFT - RIGHT);
  }

  /**
   * @param {number} x
   * @returns {number}
   */
  #timeAt(x) {
    const [start, end] = this.view;
    const share = Math.max(0, Math.min(1, (x - LEFT) / this.#plotWidth()));
    return start + share * (end - start);
  }

  /**
   * @param {number} factor of the length in view
   * @param {number} x what stays where it is
   */
  zoom(factor, x) {
    const [start, end] = this.view;
    const at = this.#timeAt(x);
    const least = Math.min(1000, this.store.atlas.end);
    const length = Math.max(least, Math.min(this.store.atlas.end, (end - start) * factor));
    const share = (at - start) / (end - start);
    this.look([at - share * length, at + (1 - share) * length]);
  }

  /** @param {number} share of what is in view */
  pan(share) {
    const [start, end] = this.view;
    const by = share * (end - start);
    this.look([start + by, end + by]);
  }

  /** @param {Stretch} stretch kept inside the recording */
  look([start, end]) {
    const length = end - start;
    const from = Math.max(0, Math.min(start, this.store.atlas.end - length));
    this.view = [from, from + length];
    this.schedule();
  }

  /** @param {Stretch | null} stretch */
  choose(stretch) {
    this.chosen = stretch;
    this.sums.fill(this.chosen);
    this.schedule();
  }
}
