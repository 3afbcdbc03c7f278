// @ts-check
/** The graph's canvas: what is placed where, and what part of it is in view. */

import { Crumbs } from "./breadcrumbs.js";
import { Arranger, NOTHING } from "../../layout/scheduler.js";
import { centred, clamp, fitTo, moveInto, zoomAt } from "./camera.js";
import { tintsOf } from "../../scene/colors.js";
import { h } from "../../dom.js";
import { READABLE, firstCamera } from "./initial_camera.js";
import { makeTools } from "./toolbar.js";
import { announce, showTooltip } from "./announcer.js";
import { Minimap } from "./minimap.js";
import { paint } from "./paint/graph.js";

import { shiftsBetween } from "./transition.js";
import { boxOf, rectOf, stepFrom } from "./hit_test.js";

/** @typedef {import("../../store.js").Item} Item */

const SLIDE_MS = 160;

export class Graph {
  /**
   * @param {import("../../store.js").Store} store
   * @param {() => import("../../canvas/theme.js").Palette} palette
   */
  constructor(store, palette) {
    this.store = store;
    this.palette = palette;
    this.placement = NOTHING;
    this.arranger = new Arranger(store.scene, (placement) => this.#show(placement));
    /** @type {import("./camera.js").Camera} */
    this.camera = { x: 0, y: 0, scale: 1 };
    /** @type {Item | null} */
    this.hovered = null;
    /** @type {Map<string, {x: number, y: number}>} */
    this.shifts = new Map();
    this.slideStart = 0;
    /** @type {import("../../scene/colors.js").Tints | null} */
    this.tints = null;
    /** @type {import("./camera.js").Rect | null} what to look at next */
    this.aim = null;
    /** Whether the reader moved the view; until then it follows its size. */
    this.touched = false;
    this.frame = 0;
    this.width = 0;
    this.height = 0;
    this.canvas = h("canvas", {
      class: "agv-canvas",
      attrs: { tabindex: "0", role: "application", "aria-label": "Autograd graph" },
    });
    this.announcer = h("div", { class: "agv-hidden", attrs: { "aria-live": "polite" } });
    this.tooltip = h("div", { class: "agv-tooltip agv-float", attrs: { role: "tooltip" } });
    this.tooltip.hidden = true;
    this.minimap = new Minimap((x, y) => this.#lookAt(x, y));
    this.crumbs = new Crumbs(store, (group) => this.lookAtGroup(group));
    this.element = h(
      "div",
      { class: "agv-graph" },
      this.canvas,
      this.minimap.element,
      ...makeTools(this, store),
      this.crumbs.element,
      this.arranger.element,
      this.tooltip,
      this.announcer,
    );
    this.resizer = new ResizeObserver(() => this.#resize());
    this.resizer.observe(this.element);
    store.subscribe((change) => this.#follow(change));
    this.arranger.arrange(store.open);
  }

  /** @param {import("../../store.js").Change} change */
  #follow(change) {
    if (change === "open") this.arranger.arrange(this.store.open);
    if (change === "selected") announce(this);
    if (change === "reveal") {
      this.arranger.whenPlaced(() => this.#bringIntoView(this.store.selected, true));
    }
    if (change === "view") this.#resize();
    if (change === "look") this.tints = tintsOf(this.store.atlas, this.store.colour);
    this.schedule();
  }

  /** Draw again with the next frame. */
  schedule() {
    this.frame ||= requestAnimationFrame(() => this.#draw());
  }

  /** Colours or fonts changed. */
  restyle() {
    this.minimap.draw(this.store.scene, this.placement, this.palette());
    this.schedule();
  }

  destroy() {
    this.arranger.destroy();
    cancelAnimationFrame(this.frame);
    this.resizer.disconnect();
  }

  #resize() {
    const { clientWidth, clientHeight } = this.element;
    if (!clientWidth || (clientWidth === this.width && clientHeight === this.height)) return;
    this.camera.x -= (clientWidth - this.width) / 2 / this.camera.scale;
    this.width = clientWidth;
    this.height = clientHeight;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(clientWidth * ratio);
    this.canvas.height = Math.round(clientHeight * ratio);
    if (!this.touched && this.placement !== NOTHING) this.camera = firstCamera(this);
    this.#takeAim();
    // At once: a canvas that was just resized is blank until it is drawn.
    this.#draw();
  }

  /**
   * Groups opened or closed: the one that the reader touched keeps its place on screen.
   *
   * @param {import("../../layout/coordinates.js").Placement} placement
   */
  #show(placement) {
    const before = this.placement;
    const camera = { ...this.camera };
    this.placement = placement;
    this.hovered = null;
    this.tooltip.hidden = true;
    this.minimap.draw(this.store.scene, placement, this.palette());
    if (before === NOTHING) {
      if (this.width) this.camera = firstCamera(this);
    } else {
      this.touched = true;
      const { anchor } = this.store;
      const was = boxOf(before, anchor);
      const is = boxOf(placement, anchor);
      if (was && is) {
        this.camera.x += is.x - was.x;
        this.camera.y += is.y - was.y;
      }
      this.shifts = shiftsBetween(before, camera, placement, this.camera);
      this.slideStart = performance.now();
    }
    this.schedule();
  }

  #draw() {
    this.frame = 0;
    if (!this.width || this.placement === NOTHING) return;
    const ctx = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    const ratio = window.devicePixelRatio || 1;
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    const { camera, placement, width, height } = this;
    const part = this.shifts.size ? (performance.now() - this.slideStart) / SLIDE_MS : 1;
    if (part >= 1) this.shifts.clear();
    // Where the view is, for whoever drives the page by machine.
    this.canvas.dataset.camera = `${camera.x} ${camera.y} ${camera.scale}`;
    const family = getComputedStyle(this.canvas).fontFamily;
    const pen = { ctx, family, palette: this.palette(), scale: camera.scale };
    paint(pen, this.look(clamp(part, 0, 1)));
    const view = { x: camera.x, y: camera.y, w: width / camera.scale, h: height / camera.scale };
    this.minimap.mark(view, placement, pen.palette);
    this.crumbs.mark(placement, view);
    if (this.shifts.size) this.schedule();
  }

  /**
   * Everything that a picture of the view depends on.
   *
   * @param {number} part of a slide that is done, from 0 to 1
   * @returns {import("./paint/graph.js").Look}
   */
  look(part) {
    const { atlas, selected, time, half, route } = this.store;
    const { camera, placement, hovered, tints, width, height } = this;
    const left = (1 - part) ** 3;
    const shifts = new Map();
    for (const [key, { x, y }] of this.shifts) shifts.set(key, { x: x * left, y: y * left });
    const chosen = { selected, hovered, time, half, route, tints };
    return { atlas, placement, camera, ...chosen, shifts, linesAlpha: part ** 2, width, height };
  }

  /**
   * @param {number} x
   * @param {number} y
   */
  #lookAt(x, y) {
    this.touched = true;
    this.camera.x = x - this.width / this.camera.scale / 2;
    this.camera.y = y - this.height / this.camera.scale / 2;
    this.schedule();
  }

  /**
   * A group's contents in view.
   *
   * @param {number} group
   */
  lookAtGroup(group) {
    this.arranger.whenPlaced(() => this.#aimAt(group));
  }

  /** @param {number} group */
  #aimAt(group) {
    const box = boxOf(this.placement, { kind: "group", index: group });
    const { width, height } = this.placement;
    this.touched = true;
    this.aim = box ? rectOf(box) : { x: 0, y: 0, w: width, h: height };
    this.#resize();
    if (this.width) this.#takeAim();
  }

  /** Look at what was asked for, once the size of the view is known. */
  #takeAim() {
    if (!this.aim) return;
    this.camera = fitTo(this.aim, this.width, this.height);
    this.aim = null;
    this.schedule();
  }

  /** The whole graph in view. */
  fit() {
    this.lookAtGroup(0);
  }

  /**
   * @param {number} factor
   * @param {number} x
   * @param {number} y
   */
  zoom(factor, x, y) {
    this.touched = true;
    this.camera = zoomAt(this.camera, factor, x, y);
    this.schedule();
  }

  /**
   * @param {number} dx in screen units
   * @param {number} dy
   */
  pan(dx, dy) {
    this.touched = true;
    this.camera.x -= dx / this.camera.scale;
    this.camera.y -= dy / this.camera.scale;
    this.schedule();
  }

  /**
   * The point of the world under a point of the canvas.
   *
   * @param {number} x
   * @param {number} y
   * @returns {[number, number]}
   */
  worldAt(x, y) {
    return [this.camera.x + x / this.camera.scale, this.camera.y + y / this.camera.scale];
  }

  /**
   * Move the selection along an edge or to a neighbour.
   *
   * @param {import("./hit_test.js").Way} way
   */
  step(way) {
    const { atlas, open, selected } = this.store;
    const next = stepFrom(atlas, this.placement, open, selected, way);
    this.store.select(next);
    this.#bringIntoView(next, false);
  }

  /**
   * @param {Item | null} item
   * @param {boolean} readable zoom in where its words would be too small
   */
  #bringIntoView(item, readable) {
    const box = boxOf(this.placement, item);
    if (!box || !this.width) return;
    this.touched = true;
    const rect = rectOf(box);
    if (readable && this.camera.scale < READABLE) {
      this.camera = centred(rect, this.width, this.height, 0.9);
    }
    this.camera = moveInto(this.camera, rect, this.width, this.height);
    this.schedule();
  }

  /**
   * Light an item's neighbours and say what it is.
   *
   * @param {Item | null} item
   * @param {number} x
   * @param {number} y
   */
  hover(item, x, y) {
    this.hovered = item;
    showTooltip(this, item, x, y);
    this.schedule();
  }
}
