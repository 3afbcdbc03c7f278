// @ts-check
/** The strip of compiled regions, the picture of one, and a card for the selected part. */

import { choice, h, onResize, pressOne } from "../../dom.js";
import { formChoice } from "./switch_saved_values_before_after_hooks.js";
import { icon } from "../../canvas/draw_icon.js";
import { placeOf } from "../../scene/format_numbers_and_names.js";
import { itemCard, regionCard } from "./cards_of_region_and_selected_part.js";
import { storageOf } from "./describe_part.js";
import { LEAST_SCALE, drawPicture } from "./region_as_svg.js";

/** @typedef {import("../../types.js").SceneCompiledStep} Step */

/** Of the picture in its pane. */
const PADDING = 28;

export class Compiled {
  /** @param {import("../../shared_view_state.js").Store} store */
  constructor(store) {
    this.store = store;
    /** Indices of the selected items: one, or all that hold the selected storage. */
    this.items = /** @type {number[]} */ ([]);
    this.form = formChoice(store);
    this.strip = h("div", { class: "agv-list", attrs: { "aria-label": "Compiled regions" } });
    this.main = h("div", "agv-main agv-compiled");
    this.card = h("aside", {
      class: "agv-region-diffs",
      attrs: { tabindex: 0, "aria-label": "Saved values" },
    });
    this.element = h(
      "div",
      "agv-split agv-split-three",
      h("aside", "agv-side", this.strip),
      this.main,
      this.card,
    );
    store.subscribe(["compiled"], () => this.#fill());
    store.subscribe(["savedForm"], () => this.#showForm());
    store.subscribe(["selected"], () => this.#follow());
    this.#fill();
    this.#follow();
  }

  get #region() {
    return this.store.scene.compiled_regions[this.store.compiled];
  }

  #fill() {
    const { scene } = this.store;
    this.items = [];
    this.strip.replaceChildren(
      h("div", "agv-list-head", "Along the source"),
      ...scene.compiled_steps.map((step) => this.#step(step)),
    );
    const region = this.#region;
    const pictures = scene.compiled_pictures.filter((each) => each.region === region?.index);
    if (!region || !pictures.length) {
      const text = "No graph was compiled: all of the program ran eagerly.";
      this.main.replaceChildren(h("p", "agv-empty-text", text));
      this.card.hidden = true;
      return;
    }
    const attrs = { tabindex: 0, role: "group", "aria-label": `Picture of ${region.name}` };
    const scroll = h("div", { class: "agv-scroll", attrs });
    const initial = pictures.find((each) => each.initial) ?? pictures[0];
    let shown = initial;
    let isChosen = false;
    const draw = () => {
      const room = scroll.clientWidth ? scroll.clientWidth - PADDING : Infinity;
      if (!isChosen) {
        // One whose columns are in a row.
        const fits = (/** @type {typeof initial} */ each) => each.width * LEAST_SCALE <= room;
        shown = [initial, ...pictures].find(fits) ?? initial;
        pressOne(details, shown.detail);
      }
      this.picture = drawPicture(scene, shown, (item) => this.#select(item), room);
      scroll.replaceChildren(this.picture.element);
      this.picture.mark(this.items);
    };
    const choose = (/** @type {string} */ detail) => {
      isChosen = true;
      shown = pictures.find((each) => each.detail === detail) ?? shown;
      draw();
    };
    const details = choice(["blocks", "lines"], "", choose);
    this.#showForm();
    this.main.replaceChildren(
      h(
        "div",
        "agv-view-head",
        h("h3", "", region.name),
        h("span", "agv-muted", region.subtitle),
        region.planned !== "" && h("span", "agv-pill", region.planned),
        pictures.length > 1 && details,
        initial.hooks && this.form,
      ),
      scroll,
    );
    onResize(scroll, draw);
    draw();
    this.#mark();
  }

  /** Draw the saved values before or after the hooks that the compiler has inlined. */
  #showForm() {
    this.main.classList.toggle("agv-compiled-before", this.store.savedForm === "before hooks");
  }

  /**
   * @param {Step} step
   * @returns {HTMLElement}
   */
  #step(step) {
    const { scene } = this.store;
    const place = step.lineno ? placeOf(step) : "";
    if (step.kind === "region") {
      const { saved } = scene.compiled_regions[step.region];
      const current = step.region === this.store.compiled;
      const open = () => this.#open(step.region);
      const entry = h(
        "button",
        { class: `agv-step ${current ? "agv-selected" : ""}`, onclick: open },
        h("b", "", step.title),
        h("span", "agv-saved", saved),
        h("code", "", `${place} ${step.text}`.trim()),
      );
      entry.type = "button";
      if (current) entry.setAttribute("aria-current", "true");
      return entry;
    }
    const isBreak = step.kind === "break";
    return h(
      "div",
      `agv-step agv-step-${step.kind}`,
      h("b", {}, icon(isBreak ? "close" : "checkpoint"), isBreak ? "Graph break" : "Recompiled"),
      h("code", "", `${place} ${step.text}`.trim()),
      h("p", "", step.title),
      step.hint !== "" && h("p", "agv-muted", step.hint),
    );
  }

  /** @param {number} region */
  #open(region) {
    this.store.set("compiled", region);
    const [node] = this.#region.nodes;
    if (node !== undefined) this.store.set("selected", { kind: "node", index: node });
  }

  /** @param {number} item -1 selects nothing */
  #select(item) {
    this.items = item < 0 ? [] : [item];
    const storage = storageOf(this.store.scene, item);
    if (storage) this.store.set("selected", storage);
    this.#mark();
  }

  /** Show what was selected in another view: the region of a node, the ribbon of a storage. */
  #follow() {
    const { selected, scene } = this.store;
    if (selected?.kind === "node") {
      const region = this.store.compiledRegionOf(selected.index);
      if (region >= 0) this.store.set("compiled", region);
    } else if (selected?.kind === "storage") {
      const slots = new Set(
        scene.compiled_slots.flatMap(({ storage }, at) => (storage === selected.index ? [at] : [])),
      );
      const holds = (/** @type {number} */ item) =>
        scene.compiled_items[item].slots.some((slot) => slots.has(slot));
      if (slots.size && !this.items.some(holds)) {
        this.items = (this.picture?.ribbons ?? []).filter(holds);
        this.#mark();
      }
    }
  }

  #mark() {
    const { scene } = this.store;
    this.picture?.mark(this.items);
    const cards = this.items.length
      ? this.items.flatMap((item) => itemCard(this.store, scene.compiled_items[item]))
      : regionCard(this.store, this.#region);
    this.card.hidden = false;
    this.card.replaceChildren(...cards);
    this.card.scrollTop = 0;
  }
}
