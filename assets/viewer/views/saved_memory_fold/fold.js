// @ts-check
/** The view of the fold: source lines, the fold itself, and what fills the memory in words. */

import { startDrawing } from "../../canvas/size_cache_and_clip_canvas.js";
import { hostTheme } from "../../canvas/theme.js";
import { button, chartCanvas, claim, h, listen, onResize, setPressed } from "../../dom.js";
import { formatBytes } from "../../scene/format_numbers_and_names.js";
import { foldAt, largestFold } from "../../scene/bytes_of_ribbons_and_folds.js";
import { stepAt } from "../../scene/step_of_time_or_node.js";
import { heldAt, workAt } from "../../scene/progress_at_replayed_time.js";
import { predictMemory } from "../../scene/predict_memory.js";
import { makeNotices } from "../../shell/recording_notices.js";
import { placeTooltip } from "../../shell/place_tooltip.js";
import { makeAnswer, ribbonLines } from "./what_fills_memory.js";
import { isStopped } from "../../scene/sum_and_describe_saved_bytes.js";
import { Budget } from "./memory_budget.js";
import { RibbonLayer } from "./repaint_changed_ribbons.js";
import { areaOf, paintFold } from "./paint_fold.js";
import { extentAt } from "./ribbon_shape.js";
import { makeSourceHeat } from "./source_lines_with_bytes.js";

/** @typedef {import("./ribbon_shape.js").Ribbon} Ribbon */

export class Fold {
  /**
   * @param {import("../../shared_view_state.js").Store} store
   * @param {() => import("../../canvas/theme.js").Palette} palette
   */
  constructor(store, palette) {
    this.store = store;
    this.palette = palette;
    this.at = largestFold(store.scene);
    /** Index of the fold that is displayed while nothing is replayed. */
    this.chosenFold = this.at;
    /** @type {Ribbon | null} */
    this.hovered = null;
    /** @type {Ribbon | null} under the keys */
    this.chosen = null;
    /** @type {Budget | null} */
    this.budget = null;
    /** @type {string} of the kind that is lit, "" for all */
    this.kind = "";
    this.canvas = chartCanvas("The fold; the list beside it has its sums");
    this.tooltip = h("div", "agv-tooltip agv-float");
    this.tooltip.hidden = true;
    this.spoken = h("div", { class: "agv-visually-hidden", attrs: { "aria-live": "polite" } });
    this.stage = h(
      "div",
      {
        class: "agv-fold-canvas",
        attrs: { role: "group", tabindex: "0", "aria-label": "Ribbons of saved tensors" },
      },
      this.canvas,
      this.tooltip,
    );
    this.answer = h("aside", {
      class: "agv-fold-answer",
      attrs: { tabindex: 0, "aria-label": "What fills the memory" },
    });
    this.heat = makeSourceHeat(store, this.at);
    this.title = h("b", "agv-grow");
    const grow = () => store.grow?.();
    const open = button("Open the viewer of this step", "agv-button", grow, "Open");
    const head = h("div", "agv-fold-title agv-title-line", this.title, open);
    this.element = h(
      "div",
      "agv-fold",
      this.heat.element,
      h(
        "div",
        "agv-fold-middle",
        makeNotices(store),
        head,
        this.#choice(),
        this.stage,
        this.spoken,
      ),
      this.answer,
    );
    listen(this.stage, "pointermove", (event) => this.#hover(event));
    listen(this.stage, "pointerleave", () => this.#leave());
    listen(this.stage, "click", () => this.#select(this.hovered));
    listen(this.stage, "keydown", (event) => this.#press(event));
    this.resizer = onResize(this.stage, () => {
      this.#showEntry();
      this.draw();
    });
    store.subscribe(["matches", "selected", "view"], () => this.draw());
    store.subscribe(["plan"], () => this.#answer());
    store.subscribe(["time"], () => this.#play());
    store.subscribe(["step"], () => {
      const { time, step } = store;
      // A time of another step would show an empty fold.
      if (step >= 0 && time !== null && stepAt(store.scene, time) !== step) store.set("time", null);
      this.#choose(largestFold(store.scene, step));
    });
    this.layer = new RibbonLayer();
    this.show(this.at);
  }

  destroy() {
    this.resizer.disconnect();
  }

  /** @returns {import("../../types.js").SceneFold} */
  get fold() {
    return this.store.scene.folds[this.at];
  }

  /** @returns {HTMLElement | false} buttons of all folds, if there are several */
  #choice() {
    const folds = [...this.store.scene.folds];
    if (folds.length < 2) return false;
    const most = Math.max(...folds.map(({ peak_nbytes }) => peak_nbytes), 1);
    const broken = new Set();
    const { scene } = this.store;
    for (const { fold, state } of scene.ribbons) {
      const isHarm = !isStopped(scene) || isStopped(scene, scene.folds[fold].step);
      if (state === "broken" || (state === "kept" && isHarm)) broken.add(fold);
    }
    /** @type {HTMLElement[]} */
    const sizes = [];
    this.sizes = sizes;
    const entries = folds.map(({ index, label, peak_nbytes, drawn, step }) => {
      const number = this.store.scene.steps[step]?.number;
      const name = number === undefined ? label : `step ${number} · ${label}`;
      const bar = h("span", `agv-fold-size ${broken.has(index) ? "agv-fold-harm" : ""}`);
      bar.style.width = `${Math.max(3, (100 * peak_nbytes) / most)}%`;
      const size = h("span", "agv-muted");
      sizes.push(size);
      const show = () => {
        this.store.set("time", null);
        this.#choose(index);
      };
      const entry = button(`Show ${name}`, "agv-fold-entry", show, h("span", "", name), size, bar);
      entry.removeAttribute("aria-label"); // its text is its name
      entry.disabled = !drawn;
      return entry;
    });
    this.entries = entries;
    return h(
      "div",
      { class: "agv-fold-entries", attrs: { role: "group", "aria-label": "Backwards" } },
      ...entries,
    );
  }

  /** @param {number} at index of the fold to show, -1 for that on display */
  #choose(at) {
    if (at < 0) return;
    this.chosenFold = at;
    this.show(at);
  }

  /** @param {number} at index of the fold to show */
  show(at) {
    if (at !== this.at) {
      const heat = makeSourceHeat(this.store, at);
      this.heat.element.replaceWith(heat.element);
      this.heat = heat;
    }
    this.at = at;
    this.chosen = this.hovered = null;
    this.ribbons = this.store.scene.ribbons.filter(({ fold }) => fold === at);
    this.entries?.forEach((entry, index) => {
      setPressed(entry, index === at);
    });
    this.#showEntry();
    this.answer.replaceChildren();
    // A plan is of one step, and of all its backwards.
    const plan = this.store.scene.budget_plans[this.store.plan];
    if (plan && plan.step !== this.fold.step) this.store.set("plan", -1);
    else this.#answer();
  }

  /** Scroll to the button of the fold on display. */
  #showEntry() {
    const entry = this.entries?.[this.at];
    if (entry?.parentElement) entry.parentElement.scrollTop = entry.offsetTop - 6;
  }

  /** Write what fills the memory, as recorded or as the budget on display predicts. */
  #answer() {
    const { findings, budget_plans: plans } = this.store.scene;
    this.title.textContent = findings.length ? findings[0].title : this.fold.sentence;
    const { step } = this.fold;
    const chosenPlan = plans[this.store.plan];
    const plan = chosenPlan?.step === step ? chosenPlan : undefined;
    const chosen = new Map(plan?.modules.map((name) => [name, "checkpoint"]));
    this.held = plan && predictMemory(this.store.scene, chosen, step).held();
    const light = (/** @type {string} */ kind) => {
      this.kind = this.kind === kind ? "" : kind;
      this.draw();
      return this.kind === kind;
    };
    this.heat.predict(this.held);
    this.sizes?.forEach((size, at) => {
      const predicted = plan && at === this.at && `${formatBytes(plan.peak_nbytes)} predicted`;
      size.textContent = predicted || sizeText(this.store.scene.folds[at]);
    });
    const parts = makeAnswer(this.store, this.fold, this.ribbons ?? [], light, plan, this.held);
    if (plans.some((each) => each.step === step)) {
      this.budget ??= new Budget(this.store, this.palette);
      if (this.budget.step !== step) this.budget.show(step);
      parts.splice(-1, 0, this.budget.element);
    }
    // The budget keeps its place, and with it the focus and the pointer that drags it.
    const { children } = this.answer;
    if (children.length === parts.length) {
      parts.forEach((part, at) => part !== children[at] && children[at].replaceWith(part));
    } else this.answer.replaceChildren(...parts);
    this.draw();
  }

  /** @returns {Set<Ribbon>} that stand out */
  get lit() {
    const { selected, related, matches, scene } = this.store;
    const found = (this.ribbons ?? []).filter((ribbon) => {
      if (this.kind) return ribbon.kind === this.kind;
      if (matches) return matches.has(ribbon.node);
      if (selected?.kind !== "storage") return false;
      const { storage_id: id } = scene.storages[selected.index];
      return ribbon.members.some((at) => scene.counted_storages[at].storage_id === id);
    });
    return new Set(related ? found : []);
  }

  /** Show the fold of the replayed time, and draw what depends on the time. */
  #play() {
    const { time, scene } = this.store;
    const at = time === null ? this.chosenFold : foldAt(scene, time, this.at);
    if (at !== this.at) this.show(at);
    // Once the view is on display, everything is drawn.
    const drawing = startDrawing(this.canvas, this.palette());
    if (!drawing) return;
    this.paint(drawing);
    this.heat.play();
    this.budget?.draw();
  }

  draw() {
    const drawing = startDrawing(this.canvas, this.palette());
    if (drawing) this.paint(drawing);
    this.heat.play();
    this.budget?.draw();
  }

  /** @param {import("../../canvas/size_cache_and_clip_canvas.js").Drawing} drawing */
  paint(drawing) {
    paintFold(drawing, {
      scene: this.store.scene,
      fold: this.fold,
      ribbons: this.ribbons ?? [],
      time: this.store.time,
      held: this.store.time === null ? 0 : heldAt(this.store.sceneIndex, this.store.time),
      work: this.store.time === null ? -1 : workAt(this.store.sceneIndex, this.store.time),
      hovered: this.hovered ?? this.chosen,
      lit: this.lit,
      planned: this.held?.again ?? new Set(),
      inputs: this.held?.inputs,
      theme: hostTheme(),
      layer: drawing.pen.ctx.canvas === this.canvas ? this.layer : undefined,
    });
  }

  /** @param {PointerEvent} event */
  #hover(event) {
    const { left, top } = this.stage.getBoundingClientRect();
    const [x, y] = [event.clientX - left, event.clientY - top];
    const area = areaOf(this.stage.clientWidth, this.stage.clientHeight);
    const found = (this.ribbons ?? []).findLast((ribbon) => {
      const extent = extentAt(area, ribbon, y);
      return extent && extent[0] <= x && x < Math.max(extent[1], extent[0] + 1.5);
    });
    if (found !== this.hovered) {
      this.hovered = found ?? null;
      this.draw();
    }
    this.tooltip.hidden = !found;
    if (!found) return;
    placeTooltip(
      this.tooltip,
      ribbonLines(this.store, found),
      x,
      y,
      this.stage.clientWidth,
      this.stage.clientHeight,
    );
  }

  #leave() {
    this.tooltip.hidden = true;
    if (!this.hovered) return;
    this.hovered = null;
    this.draw();
  }

  /** @param {Ribbon | null} ribbon */
  #select(ribbon) {
    const { scene, sceneIndex } = this.store;
    const storage = scene.counted_storages[ribbon?.members[0] ?? -1];
    const index = storage && sceneIndex.storageOf.get(storage.storage_id);
    this.store.set("selected", index === undefined ? null : { kind: "storage", index });
    const old = this.answer.querySelector(".agv-fold-card");
    if (!ribbon) return old?.replaceChildren();
    const lines = ribbonLines(this.store, ribbon).map((text, at) =>
      h("div", at ? "agv-text" : "agv-strong", text),
    );
    const show = () => index !== undefined && this.store.reveal({ kind: "storage", index });
    const graph = () => this.store.reveal({ kind: "node", index: ribbon.node });
    const line = () => this.store.showLine(ribbon.filename, ribbon.lineno);
    old?.replaceChildren(
      ...lines,
      h(
        "div",
        "agv-buttons",
        index !== undefined && button("Show its lifeline", "agv-link", show),
        ribbon.node >= 0 && button("Show in the graph", "agv-link", graph),
        ribbon.lineno > 0 && button("Open the source line", "agv-link", line),
      ),
    );
  }

  /** @param {KeyboardEvent} event */
  #press(event) {
    const ribbons = this.ribbons ?? [];
    const at = this.chosen ? ribbons.indexOf(this.chosen) : -1;
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step) {
      claim(event);
      this.chosen = ribbons[Math.max(0, Math.min(ribbons.length - 1, at + step))];
      this.spoken.textContent = ribbonLines(this.store, this.chosen).join(". ");
      this.draw();
    } else if (event.key === "Enter" && this.chosen) {
      claim(event);
      this.#select(this.chosen);
    }
  }
}

/**
 * @param {import("../../types.js").SceneFold} fold
 * @returns {string}
 */
function sizeText({ peak_nbytes, shared_nbytes }) {
  const shared = shared_nbytes ? ` + ${formatBytes(shared_nbytes)} shared` : "";
  return `${formatBytes(peak_nbytes)} at peak${shared}`;
}
