// @ts-check
/** When what ran, over the bytes that were kept; an area of it added up. */

import { startDrawing } from "../../canvas/charts.js";
import { axisChoice, clockOf } from "../../scene/time_axis.js";
import { h } from "../../dom.js";
import { formatBytes, formatDuration } from "../../scene/format.js";
import { Sums } from "./range_profile_panel.js";
import { keptAt } from "../../scene/range_profile.js";
import { LEFT, RIGHT, barAt, heightOf, paintTracks } from "./paint.js";
import { tracksOf } from "./rows.js";
import { placeTooltip } from "../graph/tooltip.js";

/** @typedef {import("../../store.js").Store} Store */
/** @typedef {[start: number, end: number]} Stretch */

const DRAG_FROM = 4;
const HEAD = 46;
/** @type {Record<string, string>} */
const KINDS = { mode: "switched" };

/**
 * @param {import("./rows.js").Bar} bar
 * @returns {string[]} how long it took, or when it was, and the line that began it
 */
function barWords({ kind, start, end, place }) {
  const lasted = `${KINDS[kind] ?? kind}, ${formatDuration(end - start)}`;
  return [start === end ? formatDuration(start) : lasted, place].filter(Boolean);
}

export class Timeline {
  /**
   * @param {Store} store
   * @param {() => import("../../canvas/theme.js").Palette} palette
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
    this.element.style.setProperty("--agv-rows", `${heightOf(this.tracks) + HEAD}px`);
    this.#listen();
    this.resizer = new ResizeObserver(() => this.draw());
    this.resizer.observe(this.element);
    store.subscribe((change) => {
      if (["time", "axis", "view", "selected"].includes(change)) this.schedule();
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
          axisChoice(this.store),
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

  /** @param {{pen: import("../../canvas/text.js").Pen, width: number, height: number}} drawing */
  paint(drawing) {
    paintTracks(drawing, this.store, this.tracks, this.view, this.chosen, clockOf(this.store));
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

  /**
   * @param {MouseEvent} event
   * @returns {import("./rows.js").Bar | null}
   */
  #barAt({ offsetX, offsetY }) {
    const clock = clockOf(this.store);
    return barAt(this.tracks, this.view, this.#plotWidth(), offsetX, offsetY, clock);
  }

  /** @param {PointerEvent} event */
  #click(event) {
    const bar = this.#barAt(event);
    if (bar && bar.ref >= 0 && (bar.kind === "node" || bar.kind === "accumulate")) {
      this.store.select({ kind: "node", index: bar.ref });
    } else if (this.chosen) this.choose(null);
    else this.store.setTime(this.#timeAt(event.offsetX));
  }

  /** @param {MouseEvent} event */
  #open(event) {
    const bar = this.#barAt(event);
    if (bar) this.choose([bar.start, bar.end]);
  }

  /** @param {PointerEvent} event */
  #hover(event) {
    const bar = this.#barAt(event);
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
      f: () => this.#lookFrom(0, clockOf(this.store).at(this.store.atlas.end)),
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
    const [first, last] = this.#places();
    const share = Math.max(0, Math.min(1, (x - LEFT) / this.#plotWidth()));
    return clockOf(this.store).timeAt(first + share * (last - first));
  }

  /** @returns {Stretch} what is in view, on the axis */
  #places() {
    const { at } = clockOf(this.store);
    return [at(this.view[0]), at(this.view[1])];
  }

  /**
   * @param {number} factor of the length in view
   * @param {number} x what stays where it is
   */
  zoom(factor, x) {
    const [first, last] = this.#places();
    const { at, least } = clockOf(this.store);
    const all = at(this.store.atlas.end);
    const place = at(this.#timeAt(x));
    const length = Math.max(Math.min(least, all), Math.min(all, (last - first) * factor));
    const share = (place - first) / (last - first);
    this.#lookFrom(place - share * length, length);
  }

  /** @param {number} share of what is in view */
  pan(share) {
    const [first, last] = this.#places();
    this.#lookFrom(first + share * (last - first), last - first);
  }

  /**
   * @param {number} first place on the axis; kept inside the recording
   * @param {number} length
   */
  #lookFrom(first, length) {
    const { at, timeAt } = clockOf(this.store);
    const from = Math.max(0, Math.min(first, at(this.store.atlas.end) - length));
    this.view = [timeAt(from), timeAt(from + length)];
    this.schedule();
  }

  /** @param {Stretch | null} stretch */
  choose(stretch) {
    this.chosen = stretch;
    this.sums.fill(this.chosen);
    this.schedule();
  }
}
