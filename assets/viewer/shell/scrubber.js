// @ts-check
/** The whole recording in one strip: drag it to see how everything stood at a time. */

import { paintTimes, paintTorn, startDrawing } from "../canvas/charts.js";
import { button, h } from "../dom.js";
import { formatCount, formatDuration } from "../scene/format.js";
import { icon } from "../canvas/icons.js";
import { runningAt } from "../scene/replay.js";
import { BANDS, paintBands, paintCurve, paintNow } from "./scrubber_paint.js";

const PLAY_MS = 12_000;
const SIDE = 12;
const TORN = 46;

export class Scrubber {
  /**
   * @param {import("../store.js").Store} store
   * @param {() => import("../canvas/theme.js").Palette} palette
   */
  constructor(store, palette) {
    this.store = store;
    this.palette = palette;
    this.frame = 0;
    /** @type {number[] | null} worked out with the first step */
    this.steps = null;
    this.failedAt = failureOf(store.scene);
    /** What lies behind a torn recording's end is hatched. */
    this.right = store.scene.summary.torn ? TORN : SIDE;
    this.canvas = h("canvas");
    this.strip = h(
      "div",
      {
        class: "agv-strip",
        attrs: { role: "slider", tabindex: "0", "aria-label": "Time", "aria-valuemin": 0 },
      },
      this.canvas,
    );
    this.strip.setAttribute("aria-valuemax", String(Math.round(store.atlas.end / 1e3)));
    this.playButton = button("Play", "agv-tool", () => this.play(), icon("play"));
    this.title = h("b");
    this.below = h("span", { class: "agv-muted" });
    this.element = h(
      "footer",
      { class: "agv-scrubber", attrs: { "aria-label": "Replay" } },
      h(
        "div",
        { class: "agv-scrubber-side" },
        button("To the start", "agv-tool", () => this.#go(0), icon("start")),
        this.playButton,
        button("To the end", "agv-tool", () => this.#go(null), icon("end")),
        h("div", { class: "agv-scrubber-words" }, this.title, this.below),
      ),
      this.strip,
    );
    this.#listen();
    this.resizer = new ResizeObserver(() => this.draw());
    this.resizer.observe(this.strip);
    store.subscribe((change) => change === "time" && this.draw());
  }

  destroy() {
    this.#stop();
    this.resizer.disconnect();
  }

  #listen() {
    const follow = (/** @type {PointerEvent} */ event) => {
      if (!event.buttons) return;
      this.#go(this.#timeAt(event.offsetX));
    };
    this.strip.addEventListener("pointerdown", (event) => {
      this.strip.setPointerCapture(event.pointerId);
      follow(event);
    });
    this.strip.addEventListener("pointermove", follow);
    this.strip.addEventListener("keydown", (event) => this.#press(event));
  }

  /** @param {KeyboardEvent} event */
  #press(event) {
    const act = /** @type {Record<string, () => void>} */ ({
      ArrowRight: () => this.step(1),
      ArrowUp: () => this.step(1),
      ArrowLeft: () => this.step(-1),
      ArrowDown: () => this.step(-1),
      PageUp: () => this.step(10),
      PageDown: () => this.step(-10),
      Home: () => this.#go(0),
      End: () => this.#go(null),
      " ": () => this.play(),
    })[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  /**
   * Go to another event.
   *
   * @param {number} count how many on; back where negative
   */
  step(count) {
    const now = this.store.time ?? this.store.atlas.end;
    this.steps ??= stepsOf(this.store.scene, this.store.atlas.end);
    const { steps } = this;
    const after = steps.findIndex((time) => time > now);
    const at = after < 0 ? steps.length : after;
    const onOne = steps[at - 1] === now;
    const to = count > 0 ? at + count - 1 : at + count - (onOne ? 1 : 0);
    this.#go(to >= steps.length ? null : steps[Math.max(0, to)]);
  }

  /** Play from here to the end, or stop. */
  play() {
    if (this.frame) {
      this.#stop();
      return;
    }
    const { end } = this.store.atlas;
    let time = this.store.time ?? 0;
    if (time >= end) time = 0;
    let last = performance.now();
    const next = (/** @type {number} */ now) => {
      time += (Math.max(0, now - last) / PLAY_MS) * end;
      last = now;
      this.store.setTime(time < end ? time : null);
      this.frame = time < end ? requestAnimationFrame(next) : 0;
      if (!this.frame) this.#stop();
    };
    this.frame = requestAnimationFrame(next);
    this.playButton.replaceChildren(icon("pause"));
    this.playButton.setAttribute("aria-label", "Pause");
  }

  #stop() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.playButton.replaceChildren(icon("play"));
    this.playButton.setAttribute("aria-label", "Play");
  }

  /** @param {number | null} time */
  #go(time) {
    this.#stop();
    this.store.setTime(time);
  }

  /**
   * @param {number} x
   * @returns {number | null}
   */
  #timeAt(x) {
    const { end } = this.store.atlas;
    const share = (x - SIDE) / Math.max(1, this.strip.clientWidth - SIDE - this.right);
    return share >= 1 ? null : Math.max(0, share * end);
  }

  draw() {
    this.#say();
    const drawing = startDrawing(this.canvas, this.palette());
    if (!drawing) return;
    const { pen, width, height } = drawing;
    const { end } = this.store.atlas;
    const x = (/** @type {number} */ time) => SIDE + (time / end) * (width - SIDE - this.right);
    const grid = { top: 15, bottom: height - 3 };
    paintTimes(pen, x, [0, end], 8, grid, undefined, this.failedAt);
    paintBands(pen, x, this.store.scene);
    paintCurve(pen, x, height, this.store);
    if (this.store.scene.summary.torn) {
      paintTorn(pen, { left: x(end), top: 15, right: width, bottom: height - 3 });
    }
    paintNow(pen, x, height, this.store, this.failedAt);
  }

  #say() {
    const { scene, atlas, time } = this.store;
    const now = time ?? atlas.end;
    const all = formatDuration(atlas.end);
    this.title.textContent = time === null ? all : `${formatDuration(now)} of ${all}`;
    this.below.textContent = time === null ? endWords(scene) : nowWords(scene, now);
    this.strip.setAttribute("aria-valuenow", String(Math.round(now / 1e3)));
    const words = `${this.title.textContent}, ${this.below.textContent}`;
    this.strip.setAttribute("aria-valuetext", words);
  }
}

/**
 * @param {import("../types.js").Scene} scene
 * @returns {string}
 */
function endWords({ summary, nodes }) {
  const failed = nodes.find((node) => node.state === "failed" || node.error);
  if (failed) return `stopped at ${failed.name}`;
  if (summary.error_type) return "stopped by an exception";
  return summary.torn ? `torn after event ${formatCount(summary.events)}` : "everything ran";
}

/**
 * @param {import("../types.js").Scene} scene
 * @param {number} time
 * @returns {string} "backward, MmBackward0"
 */
function nowWords(scene, time) {
  const spans = runningAt(scene, time);
  const phase = spans.findLast((span) => BANDS.includes(span.kind));
  const inner = spans.findLast((span) => span.kind === "node" || span.kind === "module");
  const words = [phase?.kind, inner?.label].filter(Boolean);
  return words.length ? words.join(", ") : "between phases";
}

/**
 * Every time at which something began or ended, in order.
 *
 * @param {import("../types.js").Scene} scene
 * @param {number} end
 * @returns {number[]}
 */
function stepsOf(scene, end) {
  const times = new Set([0]);
  for (const node of scene.nodes) {
    if (node.born_ns >= 0) times.add(node.born_ns);
    for (const time of node.runs_ns) if (time >= 0) times.add(time);
  }
  for (const span of scene.spans) if (span.kind === "recompute") times.add(span.start_ns);
  return [...times].filter((time) => time < end).sort((a, b) => a - b);
}

/**
 * When the recording failed: where its failing node began to run.
 *
 * @param {import("../types.js").Scene} scene
 * @returns {number | null}
 */
function failureOf(scene) {
  const failed = scene.nodes.find((node) => node.state === "failed");
  return failed?.runs_ns.at(-2) ?? null;
}
