// @ts-check
/** Zooms and pans the time axis of a chart with keys, the wheel and drags. */

import { choice, claim, listen } from "../dom.js";
import { timeAxis } from "../scene/time_axis.js";

/** @typedef {import("../scene/range_profile.js").TimeRange} TimeRange */
/** @typedef {import("../scene/time_axis.js").AxisKind} AxisKind */

export class TimeWindow {
  /**
   * @param {import("../shared_view_state.js").Store} store
   * @param {() => {left: number, width: number}} plot where times are drawn, in pixels
   * @param {() => void} changed called after each change
   * @param {AxisKind} kind
   * @param {number} [start] of the recording as the chart shows it
   */
  constructor(store, plot, changed, kind, start = 0) {
    this.store = store;
    this.plot = plot;
    this.changed = changed;
    this.kind = kind;
    this.start = start;
    /** @type {TimeRange} in view */
    this.view = [start, store.sceneIndex.end];
    const follow = () => {
      const step = store.scene.steps[store.step];
      if (step) this.show(Math.max(start, step.start_ns), step.end_ns, 0.02);
      else this.fit();
    };
    store.subscribe(["step"], follow);
    if (store.step >= 0) requestAnimationFrame(follow);
  }

  /** @returns {import("../scene/time_axis.js").TimeAxis} */
  get axis() {
    return timeAxis(this.store.sceneIndex, this.kind);
  }

  /** @returns {HTMLElement} buttons that choose the kind of the axis */
  makeAxisSwitch() {
    const choose = (/** @type {string} */ kind) => {
      this.kind = /** @type {AxisKind} */ (kind);
      this.changed();
    };
    const buttons = choice(["time", "events"], this.kind, choose);
    buttons.title = "Lay out by time, or one step for each event";
    return buttons;
  }

  /** @returns {[first: number, last: number]} positions in view */
  get #positions() {
    const { positionOf } = this.axis;
    return [positionOf(this.view[0]), positionOf(this.view[1])];
  }

  /**
   * @param {number} time
   * @returns {number} x in pixels
   */
  x(time) {
    const [first, last] = this.#positions;
    const { left, width } = this.plot();
    return left + ((this.axis.positionOf(time) - first) / (last - first)) * width;
  }

  /**
   * @param {number} x in pixels
   * @returns {number}
   */
  timeAt(x) {
    const [first, last] = this.#positions;
    const { left, width } = this.plot();
    const share = Math.max(0, Math.min(1, (x - left) / width));
    return this.axis.timeAt(first + share * (last - first));
  }

  /**
   * @param {number} factor of the length in view
   * @param {number} [x] the pixel that keeps its time, by default the middle
   */
  zoom(factor, x = this.plot().left + this.plot().width / 2) {
    const [first, last] = this.#positions;
    const { positionOf, minLength } = this.axis;
    const maxLength = positionOf(this.store.sceneIndex.end) - positionOf(this.start);
    const fixed = positionOf(this.timeAt(x));
    const shortest = Math.min(minLength, maxLength);
    const length = Math.max(shortest, Math.min(maxLength, (last - first) * factor));
    this.#show(fixed - ((fixed - first) / (last - first)) * length, length);
  }

  /** @param {number} share of the length in view */
  pan(share) {
    const [first, last] = this.#positions;
    this.#show(first + share * (last - first), last - first);
  }

  /**
   * Show an interval with room on both sides.
   *
   * @param {number} start
   * @param {number} end
   * @param {number} [share] of room on each side
   */
  show(start, end, share = 0.15) {
    const { positionOf, minLength } = this.axis;
    const [first, last] = [positionOf(start), positionOf(end)];
    const room = Math.max(share * (last - first), (minLength - last + first) / 2);
    this.#show(first - room, last - first + 2 * room);
  }

  /** Show the whole recording. */
  fit() {
    this.#show(-Infinity, Infinity);
  }

  /**
   * @param {number} first position; limited to the recording
   * @param {number} length
   */
  #show(first, length) {
    const { positionOf, timeAt } = this.axis;
    const [start, end] = [positionOf(this.start), positionOf(this.store.sceneIndex.end)];
    const from = Math.max(start, Math.min(first, end - length));
    this.view = [timeAt(from), timeAt(Math.min(end, from + length))];
    this.changed();
  }

  /**
   * Zoom and pan by keys and the wheel of an element.
   *
   * @param {HTMLElement} element
   */
  listen(element) {
    listen(element, "keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const act = /** @type {Record<string, () => void>} */ ({
        w: () => this.zoom(0.7),
        s: () => this.zoom(1 / 0.7),
        a: () => this.pan(-0.15),
        d: () => this.pan(0.15),
        f: () => this.fit(),
      })[event.key.toLowerCase()];
      if (!act) return;
      claim(event);
      act();
    });
    const zoomOrPan = (/** @type {WheelEvent} */ event) => {
      const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
      const zooms = event.ctrlKey || event.metaKey;
      // An unfocused chart does not stop the page around it from scrolling, and rows scroll.
      const rowsScroll = element.scrollHeight > element.clientHeight + 1;
      if (!zooms && (document.activeElement !== element || (rowsScroll && !sideways))) return;
      event.preventDefault();
      if (sideways) this.pan((event.deltaX || event.deltaY) / 1000);
      else this.zoom(Math.exp(event.deltaY * 0.0015), event.offsetX);
    };
    listen(element, "wheel", zoomOrPan, { passive: false });
  }
}
