// @ts-check
/** The budget of a step: the peak that the reader wants, and what to checkpoint for it, predicted. */

import { fillBox, setStroke } from "../../canvas/shapes.js";
import { startDrawing } from "../../canvas/size_cache_and_clip_canvas.js";
import { write } from "../../canvas/text_fitted_to_width.js";
import { copyButton } from "../../copy_button.js";
import { h, listen, section } from "../../dom.js";
import { summaryOf } from "../../scene/sum_and_describe_saved_bytes.js";
import {
  formatBytes,
  formatDuration,
  formatPlace,
  plural,
} from "../../scene/format_numbers_and_names.js";

/** @typedef {import("../../types.js").SceneBudgetPlan} Plan */

const PAD = { left: 62, right: 12, top: 10, bottom: 16 };

export class Budget {
  /**
   * @param {import("../../shared_view_state.js").Store} store
   * @param {() => import("../../canvas/theme.js").Palette} palette
   */
  constructor(store, palette) {
    this.store = store;
    this.palette = palette;
    this.step = -1;
    /** @type {Plan[]} of the step */
    this.plans = [];
    this.first = 0;
    this.peak = 0;
    this.canvas = h("canvas", { class: "agv-chart-canvas", attrs: { "aria-hidden": "true" } });
    this.input = h("input", {
      class: "agv-budget-range",
      attrs: { type: "range", min: 0, step: 1, "aria-label": "Budget" },
    });
    this.text = h("div", { class: "agv-text", attrs: { "aria-live": "polite" } });
    this.patch = h("div");
    const chart = h("div", "agv-budget-chart", this.canvas);
    this.element = section(
      "Budget",
      "drag the peak down",
      chart,
      this.input,
      this.text,
      this.patch,
    );
    const choose = (/** @type {number} */ at) => store.set("plan", at < 0 ? at : this.first + at);
    // The largest value is the step as it is: to the left, it holds less.
    listen(this.input, "input", () => choose(this.plans.length - Number(this.input.value) - 1));
    const drag = (/** @type {PointerEvent} */ event) => {
      if (event.buttons) choose(this.#nearest(event.offsetX));
    };
    listen(chart, "pointerdown", (event) => {
      chart.setPointerCapture(event.pointerId);
      drag(event);
    });
    listen(chart, "pointermove", drag);
    // In a low viewer, the patch is below the lower border.
    const show = () => this.patch.scrollIntoView({ block: "nearest" });
    listen(this.input, "change", show);
    listen(chart, "pointerup", show);
    store.subscribe(["plan"], () => this.#fill());
  }

  /** @param {number} step whose plans are offered */
  show(step) {
    const { scene } = this.store;
    this.step = step;
    this.first = scene.budget_plans.findIndex((each) => each.step === step);
    this.plans = scene.budget_plans.filter((each) => each.step === step);
    this.peak = summaryOf(scene, step).peak_nbytes;
    this.input.max = String(this.plans.length);
    const note = /** @type {Element} */ (this.element.querySelector(".agv-muted"));
    const of = scene.steps.length > 1 ? `of step ${scene.steps[step].number}: ` : "";
    note.textContent = `${of}drag the peak down`;
    this.#fill();
  }

  /** @returns {number} index of the plan on display, -1 for none */
  get #at() {
    return Math.max(-1, this.store.plan - this.first);
  }

  /** @returns {[peak: number, again: number][]} bytes of the step as it is, and of each plan */
  get #points() {
    return [
      [this.peak, 0],
      ...this.plans.map(
        (each) => /** @type {[number, number]} */ ([each.peak_nbytes, each.recomputed_nbytes]),
      ),
    ];
  }

  /**
   * @param {number} share of the peak
   * @returns {number}
   */
  #x(share) {
    const width = this.canvas.clientWidth - PAD.left - PAD.right;
    return PAD.left + share * width;
  }

  /**
   * @param {number} x
   * @returns {number} the plan whose peak is nearest, -1 for none
   */
  #nearest(x) {
    const distances = this.#points.map(([peak]) => Math.abs(this.#x(peak / this.peak) - x));
    return distances.indexOf(Math.min(...distances)) - 1;
  }

  #fill() {
    const at = this.#at;
    this.input.value = String(this.plans.length - at - 1);
    const plan = this.plans[at];
    this.input.setAttribute("aria-valuetext", formatBytes(plan ? plan.peak_nbytes : this.peak));
    this.text.textContent = plan ? sentence(plan) : asItIs(this.plans, this.peak);
    this.patch.replaceChildren(...(plan ? patchOf(plan, this.store.scene) : []));
    this.draw();
  }

  draw() {
    const drawing = startDrawing(this.canvas, this.palette());
    if (!drawing || !this.plans.length) return;
    const { pen, height } = drawing;
    const { ctx, palette } = pen;
    const points = this.#points;
    const most = Math.max(...points.map(([, again]) => again), 1);
    const bottom = height - PAD.bottom;
    const y = (/** @type {number} */ again) => bottom - (again / most) * (bottom - PAD.top);
    const small = { size: 9.5, color: palette.text2 };
    fillBox(ctx, palette.line, PAD.left, bottom, this.#x(1) - PAD.left, 1);
    write(pen, formatBytes(most), PAD.left - 5, PAD.top, { ...small, align: "right" });
    write(pen, "recomputed", PAD.left - 5, PAD.top + 11, { ...small, align: "right" });
    write(pen, "0 B", PAD.left, bottom + 9, small);
    const right = { ...small, align: /** @type {const} */ ("right") };
    write(pen, `${formatBytes(this.peak)} held`, this.#x(1), bottom + 9, right);
    setStroke(ctx, palette.recompute, 1.6);
    ctx.beginPath();
    for (const [peak, again] of points) ctx.lineTo(this.#x(peak / this.peak), y(again));
    ctx.stroke();
    points.forEach(([peak, again], index) => {
      const on = index === this.#at + 1;
      ctx.beginPath();
      ctx.arc(this.#x(peak / this.peak), y(again), on ? 5 : 2.6, 0, 2 * Math.PI);
      ctx.fillStyle = on ? palette.recompute : palette.surface;
      ctx.fill();
      ctx.stroke();
    });
  }
}

/**
 * @param {Plan[]} plans
 * @param {number} peak
 * @returns {string}
 */
function asItIs(plans, peak) {
  const least = plans.at(-1)?.peak_nbytes ?? peak;
  return `${formatBytes(peak)} as it is; ${plural(plans.length, "plan")} down to ${formatBytes(least)}`;
}

/**
 * @param {Plan} plan
 * @returns {string} what the plan checkpoints; the title has what it holds
 */
function sentence({ name, modules, of }) {
  const some = modules.length < of ? `, ${modules.length} of ${of}` : "";
  return `checkpoint ${name}${some}`;
}

/**
 * Return the line to change, as a patch, or code for the built model, and the time that it adds.
 *
 * @param {Plan} plan
 * @param {import("../../types.js").Scene} scene
 * @returns {HTMLElement[]}
 */
function patchOf(plan, { steps }) {
  const { added_ns } = plan;
  const warm = steps.length > 1 ? "" : "; the time of a first step is unreliable";
  const added =
    added_ns < 0
      ? "added time not known: backward did not get there"
      : `about ${formatDuration(added_ns)} more in a step${warm}`;
  return [h("p", "agv-muted", added), ...changeOf(plan)];
}

/**
 * @param {Pick<Plan, "filename" | "lineno" | "before" | "after">} plan
 * @returns {HTMLElement[]} the line to change, as a patch, or code for the built model
 */
export function changeOf({ filename, lineno, before, after }) {
  if (!lineno)
    return [
      h("div", "agv-muted", "where the model is built:"),
      h("pre", { class: "agv-patch", attrs: { tabindex: 0 } }, after),
      copyButton("code", after),
    ];
  const old = before.trim();
  const replaced = after.trim();
  // Only the words that differ are marked.
  const [first, second] = [old, replaced].map((text) => text.match(/\w+|\s+|./g) ?? []);
  let [start, end] = [0, 0];
  const least = Math.min(first.length, second.length);
  while (start < least && first[start] === second[start]) start++;
  while (end < least - start && first.at(-1 - end) === second.at(-1 - end)) end++;
  const marked = (/** @type {string[]} */ words) => [
    words.slice(0, start).join(""),
    h("b", "", words.slice(start, words.length - end).join("")),
    words.slice(words.length - end).join(""),
  ];
  return [
    h("div", "agv-muted agv-mono", formatPlace(filename, lineno)),
    h(
      "pre",
      { class: "agv-patch", attrs: { tabindex: 0 } },
      h("div", "agv-patch-old", "- ", ...marked(first)),
      h("div", "agv-patch-new", "+ ", ...marked(second)),
    ),
    copyButton("patch", `- ${old}\n+ ${replaced}`),
  ];
}
