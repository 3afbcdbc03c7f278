// @ts-check
/** The timeline: bars of what ran, the saved-memory curve, and a profile of a time range. */

import { KeptDrawing } from "../../canvas/size_cache_and_clip_canvas.js";
import { chartCanvas, h, listen, onResize } from "../../dom.js";
import { cutText, formatBytes, formatDuration } from "../../scene/format_numbers_and_names.js";
import { heldBytesAt } from "../../scene/sum_and_describe_saved_bytes.js";
import { warmUpText } from "../../scene/idle_and_compile_times.js";
import { TimeWindow } from "../../shell/zoom_and_pan_time_axis.js";
import { placeTooltip } from "../../shell/place_tooltip.js";
import { barAt, plotOf, heightOf, paintTime, paintTimeline, trackAt } from "./paint.js";
import { RangeProfilePanel } from "./range_profile_panel.js";
import { ROW_MEANINGS, timelineTracks } from "./tracks_and_bars.js";

/** @typedef {import("../../canvas/size_cache_and_clip_canvas.js").Drawing} Drawing */
/** @typedef {import("../../shared_view_state.js").Store} Store */
/** @typedef {import("../../scene/range_profile.js").TimeRange} TimeRange */

/** Pointer movement in pixels from which a press is a drag. */
const DRAG_DISTANCE = 4;
const HEAD_HEIGHT = 46;

/**
 * @param {import("./tracks_and_bars.js").Bar} bar
 * @param {number} origin time that is zero
 * @returns {string[]} its duration or time, and the line that started it
 */
function describeBar({ kind, start, end, place }, origin) {
  const duration = `${kind}, ${formatDuration(end - start)}`;
  return [start === end ? formatDuration(Math.max(0, start - origin)) : duration, place].filter(
    Boolean,
  );
}

export class Timeline {
  /**
   * @param {Store} store
   * @param {() => import("../../canvas/theme.js").Palette} palette
   */
  constructor(store, palette) {
    this.store = store;
    this.palette = palette;
    this.tracks = timelineTracks(store.sceneIndex, store.step);
    this.window = new TimeWindow(
      store,
      () => this.#plot(),
      () => this.schedule(),
      "time",
    );
    /** @type {TimeRange | null} the range that was dragged */
    this.range = null;
    this.frame = 0;
    this.canvas = chartCanvas(`Timeline. ${this.#summary()}`);
    this.spacer = h("div", "agv-tracks", this.canvas);
    this.spacer.style.height = `${heightOf(this.tracks)}px`;
    this.scroller = h(
      "div",
      {
        class: "agv-tracks-scroll",
        attrs: { role: "group", tabindex: "0", "aria-label": "Timeline" },
      },
      this.spacer,
    );
    this.tooltip = h("div", "agv-tooltip agv-float");
    this.tooltip.hidden = true;
    this.profile = new RangeProfilePanel(store);
    this.element = this.#layOut();
    this.element.style.setProperty(
      "--agv-rows",
      `${heightOf(this.tracks) + HEAD_HEIGHT + (this.store.scene.summary.warm_up && 19)}px`,
    );
    this.#listen();
    this.resizer = onResize(this.element, () => this.draw());
    this.isSame = false; // until the next frame, whether only the replayed time has changed
    this.kept = new KeptDrawing(this.canvas);
    store.subscribe(["time", "view", "selected", "trail", "station", "matches"], (change) =>
      this.schedule(change === "time"),
    );
    const follow = () => {
      this.tracks = timelineTracks(store.sceneIndex, store.step);
      this.profileRange(null);
    };
    store.subscribe(["step"], follow);
    follow();
  }

  /** @returns {HTMLElement} */
  #layOut() {
    const warm = warmUpText(this.store.scene.summary);
    return h(
      "div",
      "agv-timeline agv-panel-grid",
      h(
        "section",
        "agv-panel agv-panel-wide",
        h(
          "div",
          "agv-view-head",
          this.profile.sentence,
          h("span", "agv-muted agv-clamp", this.#summary()),
          h("span", "agv-end agv-muted agv-wide-only", "drag to profile a range"),
          this.window.makeAxisSwitch(),
          warm && h("span", "agv-muted agv-warm-up", `${warm}; sums of all steps leave it out`),
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
    const cut = cutText(spans.length, summary.spans, "longest");
    return cut && `${cut} bars; sums are complete`;
  }

  destroy() {
    cancelAnimationFrame(this.frame);
    this.resizer.disconnect();
  }

  /** @param {boolean} [isSame] whether only the replayed time is another one */
  schedule(isSame = false) {
    this.isSame = isSame && (this.isSame || !this.frame);
    this.frame ||= requestAnimationFrame(() => this.draw(this.isSame));
  }

  /** @param {boolean} [isSame] */
  draw(isSame = false) {
    this.frame = 0;
    this.kept.draw(this.palette(), isSame, (drawing) => this.#paint(drawing), this.#paintTime);
  }

  /** @param {Drawing} drawing */
  paint(drawing) {
    this.#paint(drawing);
    this.#paintTime(drawing);
  }

  /** @param {Drawing} drawing */
  #paint(drawing) {
    paintTimeline(drawing, this.store, this.tracks, this.window, this.range);
  }

  #paintTime = (/** @type {Drawing} */ drawing) => paintTime(drawing, this.store.time, this.window);

  #listen() {
    let from = -1;
    let dragged = false;
    const { canvas } = this;
    listen(canvas, "pointerdown", (event) => {
      if (event.button || event.offsetX < this.#plot().left) return;
      canvas.setPointerCapture(event.pointerId);
      from = event.offsetX;
      dragged = false;
      this.tooltip.hidden = true;
    });
    listen(canvas, "pointermove", (event) => {
      if (from < 0) return this.#hover(event);
      dragged ||= Math.abs(event.offsetX - from) >= DRAG_DISTANCE;
      if (!dragged) return;
      const times = [this.window.timeAt(from), this.window.timeAt(event.offsetX)].sort(
        (a, b) => a - b,
      );
      this.profileRange([times[0], times[1]]);
    });
    listen(canvas, "pointerup", (event) => {
      if (from >= 0 && !dragged) this.#click(event);
      from = -1;
    });
    listen(canvas, "pointercancel", () => (from = -1));
    listen(canvas, "pointerleave", () => (this.tooltip.hidden = true));
    listen(canvas, "dblclick", (event) => this.#doubleClick(event));
    this.window.listen(this.scroller);
    listen(this.scroller, "keydown", (event) => {
      if (event.key !== "Escape" || !this.range) return;
      event.stopPropagation();
      this.profileRange(null);
    });
  }

  /**
   * @param {MouseEvent} event
   * @returns {import("./tracks_and_bars.js").Bar | null}
   */
  #barAt({ offsetX, offsetY }) {
    return barAt(this.tracks, this.window, offsetX, offsetY);
  }

  /** @returns {import("./paint.js").Plot} */
  #plot() {
    return plotOf(this.spacer.clientWidth);
  }

  /** @param {PointerEvent} event */
  #click(event) {
    const bar = this.#barAt(event);
    const group = this.store.scene.groups.findIndex(({ path }) => path && path === bar?.label);
    if (bar?.kind === "step") this.store.showStep(bar.ref === this.store.step ? -1 : bar.ref);
    else if (bar && bar.ref >= 0 && (bar.kind === "node" || bar.kind === "accumulate")) {
      this.store.set("selected", { kind: "node", index: bar.ref });
    } else if (bar && bar.kind !== "recompute" && group >= 0) {
      this.store.set("selected", { kind: "group", index: group });
    } else if (bar?.kind === "recompute") this.store.set("region", bar.ref);
    else if (this.range) this.profileRange(null);
    else this.store.set("time", this.window.timeAt(event.offsetX));
  }

  /** @param {MouseEvent} event */
  #doubleClick(event) {
    const bar = this.#barAt(event);
    if (bar) this.profileRange([bar.start, bar.end]);
  }

  /**
   * @param {PointerEvent} event
   * @returns {string[]} the bar or the time at the pointer, and the bytes that are held then
   */
  #describe(event) {
    const bar = this.#barAt(event);
    const time = this.window.timeAt(event.offsetX);
    const held = `${formatBytes(heldBytesAt(this.store.scene, time))} held`;
    const from = this.store.scene.steps[this.store.step]?.start_ns ?? 0;
    const own = bar
      ? [bar.label || bar.kind, ...describeBar(bar, from)]
      : [formatDuration(Math.max(0, time - from))];
    return [...own, held];
  }

  /** @param {PointerEvent} event */
  #hover(event) {
    const { left, width } = this.#plot();
    const row = this.tracks[trackAt(this.tracks, event.offsetY)]?.name;
    const inPlot = event.offsetX >= left && event.offsetX <= left + width;
    const lines = inPlot
      ? this.#describe(event)
      : (event.offsetX < left && ROW_MEANINGS.find(([name]) => name === row)) || [];
    this.tooltip.hidden = !lines.length;
    if (!lines.length) return;
    const { clientWidth, clientHeight } = this.element;
    const y = event.offsetY - this.scroller.scrollTop + 36;
    placeTooltip(this.tooltip, lines, event.offsetX, y, clientWidth, clientHeight);
  }

  /** @param {TimeRange | null} range null profiles the step that is shown, or the recording */
  profileRange(range) {
    this.range = range;
    this.profile.fill(range);
    this.schedule();
  }
}
