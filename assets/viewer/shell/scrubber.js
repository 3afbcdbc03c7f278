// @ts-check
/** The bar below all views: the recording over time; dragging it replays the recording. */

import { proportionalAxis } from "../scene/time_axis.js";
import { paintTimes, paintTorn } from "../canvas/paint_time_axis.js";
import { startDrawing } from "../canvas/size_cache_and_clip_canvas.js";
import { button, claim, h, listen, onResize } from "../dom.js";
import { changeTimes, stackLayers } from "../scene/saved_memory_layers.js";
import { formatBytes, formatCount, formatDuration } from "../scene/format_numbers_and_names.js";
import { heldAt, unitTimes } from "../scene/progress_at_replayed_time.js";
import { icon } from "../canvas/draw_icon.js";
import { failedNode, runningAt, stoppedNode } from "../scene/state_at_replayed_time.js";
import {
  PHASES,
  paintBudget,
  paintFailure,
  paintMemory,
  paintOutside,
  paintPhases,
  paintTime,
} from "./scrubber_paint.js";

const PLAY_MS = 12_000;
/** Of the replay without motion, for readers who prefer that. */
const STILL_MS = 700;
/** @type {Record<string, number>} */
const SPEEDS = { "¼×": 0.25, "½×": 0.5, "1×": 1, "2×": 2, "4×": 4 };
const SIDE = 12;
const MANY_STORAGES = 5_000;
const TORN_WIDTH = 46;

export class Scrubber {
  /**
   * @param {import("../shared_view_state.js").Store} store
   * @param {() => import("../canvas/theme.js").Palette} palette
   */
  constructor(store, palette) {
    this.store = store;
    this.palette = palette;
    this.frame = 0;
    this.speed = 1;
    /** @type {"node" | "line" | "module"} that a step of the replay goes to */
    this.unit = "node";
    /** @type {number[] | null} computed by the first step */
    this.steps = null;
    /** @type {import("./scrubber_paint.js").Layers | null | undefined} made by the first picture */
    this.layers = undefined;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.later = undefined;
    this.failedAt = failureTime(store.scene);
    /** Width on the right; the time after the end of a torn file is hatched. */
    this.right = store.scene.summary.torn ? TORN_WIDTH : SIDE;
    this.canvas = h("canvas", "agv-chart-canvas");
    this.bar = h(
      "div",
      {
        class: "agv-scrubber-bar",
        attrs: { role: "slider", tabindex: "0", "aria-label": "Time", "aria-valuemin": 0 },
      },
      this.canvas,
    );
    this.bar.setAttribute("aria-valuemax", String(Math.round(store.sceneIndex.end / 1e3)));
    this.playButton = button("Play", "agv-icon-button", () => this.play(), icon("play"));
    this.title = h("b");
    this.subtitle = h("span", "agv-muted");
    this.element = h(
      "footer",
      { class: "agv-scrubber", attrs: { "aria-label": "Replay" } },
      h(
        "div",
        "agv-scrubber-side",
        button("To the start", "agv-icon-button", () => this.#go(0), icon("start")),
        button("One step back", "agv-icon-button agv-wide-only", () => this.step(-1), icon("left")),
        this.playButton,
        button("One step on", "agv-icon-button agv-wide-only", () => this.step(1), icon("right")),
        button("To the end", "agv-icon-button", () => this.#go(null), icon("end")),
        menu("Speed", Object.keys(SPEEDS), "1×", (name) => (this.speed = SPEEDS[name])),
        menu("A step goes to the next", ["node", "line", "module"], "node", (name) => {
          this.unit = /** @type {Scrubber["unit"]} */ (name);
          this.steps = null;
        }),
        h("div", "agv-scrubber-text", this.title, this.subtitle),
      ),
      this.bar,
    );
    this.#listen();
    this.resizer = onResize(this.bar, () => this.draw());
    store.subscribe(["time", "step", "plan"], () => this.draw());
  }

  destroy() {
    this.#stop();
    clearTimeout(this.later);
    this.resizer.disconnect();
  }

  #listen() {
    const follow = (/** @type {PointerEvent} */ event) => {
      if (!event.buttons) return;
      this.#go(this.#timeAt(event.offsetX));
    };
    listen(this.bar, "pointerdown", (event) => {
      this.bar.setPointerCapture(event.pointerId);
      follow(event);
    });
    listen(this.bar, "pointermove", follow);
    listen(this.bar, "keydown", (event) => this.#press(event));
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
    claim(event);
    act();
  }

  /**
   * Go to another event.
   *
   * @param {number} count of events; negative goes back
   */
  step(count) {
    const now = this.store.time ?? this.store.sceneIndex.end;
    this.steps ??= this.#stepTimes();
    const { steps } = this;
    const after = steps.findIndex((time) => time > now);
    const at = after < 0 ? steps.length : after;
    const onEvent = steps[at - 1] === now;
    const to = count > 0 ? at + count - 1 : at + count - (onEvent ? 1 : 0);
    this.#go(to >= steps.length ? null : steps[Math.max(0, to)]);
  }

  /** @returns {number[]} the times that steps go to */
  #stepTimes() {
    const { scene, sceneIndex } = this.store;
    return this.unit === "node"
      ? stepTimes(scene, sceneIndex.end)
      : [0, ...unitTimes(sceneIndex, this.unit)];
  }

  /**
   * Play from the current time to the end, or pause. A step on display, or that of a budget, is
   * played alone.
   */
  play() {
    if (this.frame) {
      this.#stop();
      return;
    }
    const { scene, sceneIndex, step, plan } = this.store;
    const own = scene.steps[step] ?? scene.steps[scene.budget_plans[plan]?.step ?? -1];
    const [start, end] = own ? [own.start_ns, own.end_ns] : [0, sceneIndex.end];
    const { positionOf, timeAt } = proportionalAxis(sceneIndex);
    const length = positionOf(end) - positionOf(start);
    let time = this.store.time ?? start;
    if (time < start || time >= end) time = start;
    let last = performance.now();
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const next = (/** @type {number} */ now) => {
      if (still && now - last < STILL_MS) {
        this.frame = requestAnimationFrame(next);
        return;
      }
      const share = (Math.max(0, now - last) / PLAY_MS) * this.speed;
      time = timeAt(positionOf(time) + share * length);
      last = now;
      this.store.set("time", time < end ? time : null);
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
    this.store.set("time", time);
  }

  /**
   * @param {number} x
   * @returns {number | null}
   */
  #timeAt(x) {
    const { end } = this.store.sceneIndex;
    const share = (x - SIDE) / Math.max(1, this.bar.clientWidth - SIDE - this.right);
    const { positionOf, timeAt } = proportionalAxis(this.store.sceneIndex);
    return share >= 1 ? null : Math.max(0, timeAt(share * positionOf(end)));
  }

  draw() {
    this.#updateText();
    const drawing = startDrawing(this.canvas, this.palette());
    if (!drawing) return;
    const { pen, width, height } = drawing;
    const { end } = this.store.sceneIndex;
    const axis = proportionalAxis(this.store.sceneIndex);
    const length = axis.positionOf(end);
    const x = (/** @type {number} */ time) =>
      SIDE + (axis.positionOf(time) / length) * (width - SIDE - this.right);
    const grid = { top: 15, bottom: height - 3 };
    paintTimes(pen, x, [0, end], 8, grid, axis, [this.failedAt, this.store.time]);
    const now = this.store.time === null ? NaN : x(this.store.time);
    paintPhases(pen, x, this.store.scene, now);
    const failed = this.failedAt === null ? NaN : x(this.failedAt);
    if (this.layers === undefined) this.#makeLayers();
    paintMemory(pen, x, height, this.store, failed, this.layers ?? null);
    const { budget_plans: plans, steps } = this.store.scene;
    const plan = plans[this.store.plan];
    if (plan) {
      const { start_ns, end_ns } = steps[plan.step];
      const whole = steps.length < 2 ? [0, end] : [start_ns, end_ns];
      paintBudget(pen, [x(whole[0]), x(whole[1])], height, this.store.scene, plan.peak_nbytes);
    }
    if (this.store.scene.summary.torn) {
      paintTorn(pen, { left: x(end), top: 15, right: width, bottom: height - 3 });
    }
    const step = this.store.scene.steps[this.store.step];
    if (step) paintOutside(pen, [x(step.start_ns), x(step.end_ns)], [x(0), x(end)], height);
    if (failed) paintFailure(pen, failed, height);
    if (this.store.time !== null) paintTime(pen, now, x(end), height);
  }

  /** Divide the held bytes by kind; of many storages, after the first picture. */
  #makeLayers() {
    const { scene } = this.store;
    this.layers = null;
    if (!scene.ribbons.length) return;
    const divide = () => {
      const times = changeTimes(this.store);
      this.layers = { times, layers: stackLayers(this.store, times, "kind") };
    };
    if (scene.counted_storages.length < MANY_STORAGES) return divide();
    this.later = setTimeout(() => {
      divide();
      this.draw();
    }, 100);
  }

  #updateText() {
    const { scene, sceneIndex, time } = this.store;
    const now = time ?? sceneIndex.end;
    const total = formatDuration(sceneIndex.end);
    const held = scene.counted_storages.length
      ? `${formatBytes(heldAt(sceneIndex, now))} held · `
      : "";
    this.title.textContent = time === null ? total : `${held}${formatDuration(now)} of ${total}`;
    this.subtitle.textContent = time === null ? describeEnd(scene) : describeTime(scene, now);
    this.bar.setAttribute("aria-valuenow", String(Math.round(now / 1e3)));
    const text = `${this.title.textContent}, ${this.subtitle.textContent}`;
    this.bar.setAttribute("aria-valuetext", text);
  }
}

/**
 * @param {string} label
 * @param {string[]} names
 * @param {string} first
 * @param {(name: string) => void} choose
 * @returns {HTMLElement}
 */
function menu(label, names, first, choose) {
  const options = names.map((name) => h("option", { text: name, attrs: { value: name } }));
  const select = h(
    "select",
    { class: "agv-scrubber-menu", title: label, attrs: { "aria-label": label } },
    ...options,
  );
  select.value = first;
  listen(select, "change", () => choose(select.value));
  return select;
}

/**
 * @param {import("../types.js").Scene} scene
 * @returns {string}
 */
function describeEnd(scene) {
  const { summary } = scene;
  const failed = scene.nodes[stoppedNode(scene)] ?? (summary.error_type && failedNode(scene));
  if (failed) return `stopped at ${failed.name}`;
  if (summary.error_type) return "stopped by an exception";
  return summary.torn ? `torn after event ${formatCount(summary.events)}` : "everything ran";
}

/**
 * @param {import("../types.js").Scene} scene
 * @param {number} time
 * @returns {string} "backward, MmBackward0"
 */
function describeTime(scene, time) {
  const spans = runningAt(scene, time);
  const phase = spans.findLast((span) => PHASES.includes(span.kind));
  const inner = spans.findLast((span) => span.kind === "node" || span.kind === "module");
  return [phase?.kind, inner?.label].filter(Boolean).join(", ") || "between phases";
}

/**
 * Return the times at which a forward op, a backward node or a recomputation starts or ends.
 *
 * @param {import("../types.js").Scene} scene
 * @param {number} end
 * @returns {number[]}
 */
function stepTimes(scene, end) {
  const times = new Set([0]);
  for (const node of scene.nodes) {
    if (node.born_ns >= 0) times.add(node.born_ns);
    for (const time of node.runs_ns) if (time >= 0) times.add(time);
  }
  for (const span of scene.spans) if (span.kind === "recompute") times.add(span.start_ns);
  return [...times].filter((time) => time < end).sort((a, b) => a - b);
}

/**
 * Return when the failing node started to run, or when what it recomputed ended.
 *
 * @param {import("../types.js").Scene} scene
 * @returns {number | null}
 */
function failureTime(scene) {
  const start = scene.nodes[stoppedNode(scene)]?.runs_ns.at(-2);
  if (start === undefined) return null;
  return scene.spans
    .filter(({ kind, start_ns }) => kind === "recompute" && start_ns >= start)
    .reduce((latest, { end_ns }) => Math.max(latest, end_ns), start);
}
