// @ts-check
/** The timeline: bars of what ran, the saved-memory curve, and a profile of a time range. */

import { startDrawing } from "../../canvas/charts.js";
import { h } from "../../dom.js";
import { cutText, formatBytes, formatDuration } from "../../scene/format.js";
import { heldBytesAt } from "../../scene/saved_bytes.js";
import { timeAxis } from "../../scene/time_axis.js";
import { makeAxisSwitch } from "../../shell/axis_switch.js";
import { placeTooltip } from "../../shell/tooltip.js";
import { LEFT, RIGHT, barAt, heightOf, paintTimeline } from "./paint.js";
import { RangeProfilePanel } from "./range_profile_panel.js";
import { timelineTracks } from "./rows.js";

/** @typedef {import("../../store.js").Store} Store */
/** @typedef {import("../../scene/range_profile.js").TimeRange} TimeRange */

/** Pointer movement in pixels from which a press is a drag. */
const DRAG_DISTANCE = 4;
const HEAD_HEIGHT = 46;
/** @type {Record<string, string>} */
const KIND_LABELS = { mode: "mode changed" };

/**
 * @param {import("./rows.js").Bar} bar
 * @returns {string[]} its duration or time, and the line that started it
 */
function describeBar({ kind, start, end, place }) {
  const duration = `${KIND_LABELS[kind] ?? kind}, ${formatDuration(end - start)}`;
  return [start === end ? formatDuration(start) : duration, place].filter(Boolean);
}

export class Timeline {
  /**
   * @param {Store} store
   * @param {() => import("../../canvas/theme.js").Palette} palette
   */
  constructor(store, palette) {
    this.store = store;
    this.palette = palette;
    this.tracks = timelineTracks(store.sceneIndex);
    /** @type {TimeRange} in view */
    this.view = [0, store.sceneIndex.end];
    /** @type {TimeRange | null} the range that is profiled; null is the recording */
    this.range = null;
    this.frame = 0;
    this.canvas = h("canvas", {
      class: "agv-chart-canvas",
      attrs: { role: "img", "aria-label": this.#summary() },
    });
    this.spacer = h("div", { class: "agv-tracks" }, this.canvas);
    this.spacer.style.height = `${heightOf(this.tracks)}px`;
    this.scroller = h(
      "div",
      { class: "agv-tracks-scroll", attrs: { tabindex: "0", "aria-label": "Timeline" } },
      this.spacer,
    );
    this.tooltip = h("div", { class: "agv-tooltip agv-float" });
    this.tooltip.hidden = true;
    this.profile = new RangeProfilePanel(store);
    this.element = this.#layOut();
    this.element.style.setProperty("--agv-rows", `${heightOf(this.tracks) + HEAD_HEIGHT}px`);
    this.#listen();
    this.resizer = new ResizeObserver(() => this.draw());
    this.resizer.observe(this.element);
    store.subscribe(["time", "axis", "view", "selected"], () => this.schedule());
    this.profile.fill(this.range);
  }

  /** @returns {HTMLElement} */
  #layOut() {
    const keys = ["W", "A", "S", "D"].map((key) => h("kbd", { text: key }));
    return h(
      "div",
      { class: "agv-timeline agv-panel-grid" },
      h(
        "section",
        { class: "agv-panel agv-panel-wide" },
        h(
          "div",
          { class: "agv-view-head" },
          h("h3", { text: "Timeline" }),
          h("span", { class: "agv-muted agv-clamp", text: this.#summary() }),
          h(
            "span",
            { class: "agv-end agv-muted agv-key-hint" },
            "zoom, pan ",
            ...keys,
            " · drag to profile a range",
          ),
          makeAxisSwitch(this.store),
        ),
        this.scroller,
        this.tooltip,
      ),
      ...this.profile.elements,
    );
  }

  /** @returns {string} */
  #summary() {
    const { summary, spans } = this.store.scene;
    return [
      formatDuration(this.store.sceneIndex.end),
      summary.peak_nbytes ? `${formatBytes(summary.peak_nbytes)} held at peak` : "",
      spans.length < summary.spans
        ? `${cutText(spans.length, summary.spans, "longest")} bars; sums are complete`
        : "",
    ]
      .filter(Boolean)
      .join(" · ");
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

  /** @param {import("../../canvas/charts.js").Drawing} drawing */
  paint(drawing) {
    const { store, tracks, view, range } = this;
    paintTimeline(drawing, store, tracks, view, range, timeAxis(store));
  }

  #listen() {
    let from = -1;
    let dragged = false;
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button || event.offsetX < LEFT) return;
      canvas.setPointerCapture(event.pointerId);
      from = event.offsetX;
      dragged = false;
      this.tooltip.hidden = true;
    });
    canvas.addEventListener("pointermove", (event) => {
      if (from < 0) return this.#hover(event);
      dragged ||= Math.abs(event.offsetX - from) >= DRAG_DISTANCE;
      if (!dragged) return;
      const times = [this.#timeAt(from), this.#timeAt(event.offsetX)].sort((a, b) => a - b);
      this.profileRange([times[0], times[1]]);
    });
    canvas.addEventListener("pointerup", (event) => {
      if (from >= 0 && !dragged) this.#click(event);
      from = -1;
    });
    canvas.addEventListener("pointercancel", () => (from = -1));
    canvas.addEventListener("pointerleave", () => (this.tooltip.hidden = true));
    canvas.addEventListener("dblclick", (event) => this.#doubleClick(event));
    this.scroller.addEventListener("keydown", (event) => this.#press(event));
    this.scroller.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
  }

  /**
   * @param {MouseEvent} event
   * @returns {import("./rows.js").Bar | null}
   */
  #barAt({ offsetX, offsetY }) {
    const axis = timeAxis(this.store);
    return barAt(this.tracks, this.view, this.#plotWidth(), offsetX, offsetY, axis);
  }

  /** @param {PointerEvent} event */
  #click(event) {
    const bar = this.#barAt(event);
    if (bar && bar.ref >= 0 && (bar.kind === "node" || bar.kind === "accumulate")) {
      this.store.set("selected", { kind: "node", index: bar.ref });
    } else if (this.range) this.profileRange(null);
    else this.store.set("time", this.#timeAt(event.offsetX));
  }

  /** @param {MouseEvent} event */
  #doubleClick(event) {
    const bar = this.#barAt(event);
    if (bar) this.profileRange([bar.start, bar.end]);
  }

  /** @param {PointerEvent} event */
  #hover(event) {
    const bar = this.#barAt(event);
    const inPlot = event.offsetX >= LEFT && event.offsetX <= LEFT + this.#plotWidth();
    this.tooltip.hidden = !inPlot;
    if (!inPlot) return;
    const time = this.#timeAt(event.offsetX);
    const lines = bar ? [bar.label || bar.kind, ...describeBar(bar)] : [formatDuration(time)];
    lines.push(`${formatBytes(heldBytesAt(this.store.scene, time))} held`);
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
      f: () => this.#setView(0, timeAxis(this.store).positionOf(this.store.sceneIndex.end)),
      Escape: () => this.profileRange(null),
    })[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  /** @param {WheelEvent} event */
  #wheel(event) {
    // An unfocused timeline does not stop the page around it from scrolling.
    const focused = document.activeElement === this.scroller;
    if (!focused && !event.ctrlKey && !event.metaKey) return;
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
   * @param {number} x in pixels
   * @returns {number}
   */
  #timeAt(x) {
    const [first, last] = this.#positionsInView();
    const share = Math.max(0, Math.min(1, (x - LEFT) / this.#plotWidth()));
    return timeAxis(this.store).timeAt(first + share * (last - first));
  }

  /** @returns {[first: number, last: number]} */
  #positionsInView() {
    const { positionOf } = timeAxis(this.store);
    return [positionOf(this.view[0]), positionOf(this.view[1])];
  }

  /**
   * @param {number} factor of the length in view
   * @param {number} x the pixel that keeps its time
   */
  zoom(factor, x) {
    const [first, last] = this.#positionsInView();
    const { positionOf, minLength } = timeAxis(this.store);
    const maxLength = positionOf(this.store.sceneIndex.end);
    const fixed = positionOf(this.#timeAt(x));
    const shortest = Math.min(minLength, maxLength);
    const length = Math.max(shortest, Math.min(maxLength, (last - first) * factor));
    const share = (fixed - first) / (last - first);
    this.#setView(fixed - share * length, length);
  }

  /** @param {number} share of the length in view */
  pan(share) {
    const [first, last] = this.#positionsInView();
    this.#setView(first + share * (last - first), last - first);
  }

  /**
   * @param {number} first position; limited to the recording
   * @param {number} length
   */
  #setView(first, length) {
    const { positionOf, timeAt } = timeAxis(this.store);
    const end = positionOf(this.store.sceneIndex.end);
    const from = Math.max(0, Math.min(first, end - length));
    this.view = [timeAt(from), timeAt(from + length)];
    this.schedule();
  }

  /** @param {TimeRange | null} range */
  profileRange(range) {
    this.range = range;
    this.profile.fill(range);
    this.schedule();
  }
}
