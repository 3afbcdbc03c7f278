// @ts-check
/** The canvas of the graph: its layout, its camera, and what floats on it. */

import { h, onResize } from "../../dom.js";
import { EMPTY_PLACEMENT, LayoutScheduler } from "../../layout/request_latest_layout.js";
import { makeColoring } from "../../scene/graph_colorings.js";
import { describePart } from "../compiled/describe_part.js";
import { placeTooltip } from "../../shell/place_tooltip.js";
import { Breadcrumbs } from "./breadcrumbs.js";
import { centered, clamp, clampTo, fitTo, moveInto, zoomAt } from "./camera.js";
import { findBox, rectOf } from "./boxes_of_items.js";
import { graphRect } from "./paint/arrow_at_detach.js";
import { READABLE, initialCamera } from "./initial_camera.js";
import { drawnNodes } from "../../scene/figures_of_step.js";
import { announcement, summarizeItem } from "./item_summary.js";
import { Minimap } from "./minimap.js";
import {
  crowdedGroups,
  fitsAcross,
  fittingIndex,
  onlyGroups,
} from "./leave_out_badges_and_ops_to_fit.js";
import { stepFrom } from "./arrow_keys.js";
import { paint } from "./paint/graph.js";
import { Legend } from "./legend.js";
import { makeToolbar } from "./toolbar.js";
import { boxOffsets } from "./box_offsets_between_layouts.js";

/** @typedef {import("../../shared_view_state.js").Item} Item */

const TRANSITION_MS = 160;
/** @type {import("../../shared_view_state.js").Change[]} */
const CHANGES = [
  "open",
  "selected",
  "reveal",
  "focus",
  "view",
  "time",
  "colorBy",
  "savedForm",
  "gradientPath",
  "trail",
  "station",
  "matches",
];

/** Groups with more boxes are not opened in the first picture. */
const MAX_OPENED = 20;

export class GraphCanvas {
  /**
   * @param {import("../../shared_view_state.js").Store} store
   * @param {() => import("../../canvas/theme.js").Palette} palette
   */
  constructor(store, palette) {
    this.store = store;
    this.palette = palette;
    this.placement = EMPTY_PLACEMENT;
    this.layoutStatus = h("div", {
      class: "agv-layout-status agv-float",
      attrs: { role: "status" },
      text: "Computing layout…",
    });
    this.layoutStatus.hidden = true;
    /** The scene that is drawn; it has fewer badges where there is no room for all. */
    this.sceneIndex = store.sceneIndex;
    /** Size of the view for which it was chosen. */
    this.fitted = [0, 0];
    this.scheduler = this.#makeScheduler();
    /** @type {import("./camera.js").Camera} */
    this.camera = { x: 0, y: 0, scale: 1 };
    /** @type {Item | null} */
    this.hovered = null;
    /** @type {Map<string, {x: number, y: number}>} */
    this.offsets = new Map();
    this.transitionStart = 0;
    /** @type {import("../../scene/graph_colorings.js").Coloring | null} */
    this.coloring = null;
    /** @type {import("./camera.js").Rect | null} what the camera shows once the size is known */
    this.pendingFit = null;
    /** True after the user moved the camera. Before that it adapts to the size of the view. */
    this.moved = false;
    this.frame = 0;
    this.width = 0;
    this.height = 0;
    this.canvas = h("canvas", {
      class: "agv-canvas",
      attrs: { tabindex: "0", role: "application", "aria-label": "Autograd graph" },
    });
    this.announcer = h("div", { class: "agv-visually-hidden", attrs: { "aria-live": "polite" } });
    this.tooltip = h("div", { class: "agv-tooltip agv-float", attrs: { role: "tooltip" } });
    this.tooltip.hidden = true;
    this.minimap = new Minimap((x, y) => this.#centerOn(x, y));
    this.breadcrumbs = new Breadcrumbs(store, (group) => this.zoomToGroup(group));
    this.count = h("span", "agv-muted");
    this.legend = new Legend(store.scene, "line");
    this.legend.update(store);
    this.element = h(
      "div",
      "agv-graph",
      this.canvas,
      ...makeToolbar(this, store),
      this.breadcrumbs.element,
      this.layoutStatus,
      this.tooltip,
      this.announcer,
    );
    this.resizer = onResize(this.element, () => this.#resize());
    store.subscribe(CHANGES, (change) => this.#update(change));
    this.scheduler.layOut(store.open);
  }

  /** @returns {LayoutScheduler} */
  #makeScheduler() {
    return new LayoutScheduler(
      this.sceneIndex.scene,
      (placement) => this.#show(placement),
      (busy) => (this.layoutStatus.hidden = !busy),
    );
  }

  /** Draw what fits into the view; after the user moved the camera, only for another width. */
  #adapt() {
    const [wide, high] = this.fitted;
    const { width, height, store } = this;
    const change = Math.max(width / wide, wide / width);
    if (this.moved ? change < 1.25 : width === wide && height === high) return;
    this.fitted = [width, height];
    const victim = store.scene.findings[0]?.nodes[0];
    const fit = () => fittingIndex(store.sceneIndex, store.open, width, height, victim);
    let fitting = fit();
    const mayOpen = !this.moved && victim === undefined;
    const fits = () => !mayOpen || fitsAcross(fitting, store.open, width);
    // Closed groups next to others are opened: the nodes of a group are narrower than its text.
    if (!fits()) {
      for (const group of crowdedGroups(store.sceneIndex, store.open)) {
        if (group.cells.length < MAX_OPENED) store.toggle(group.index, true);
      }
      fitting = fit();
    }
    // The only group is open to show something; closed, it is all that fits.
    for (const only of onlyGroups(store.scene, store.open)) {
      if (fits()) break;
      store.toggle(only, false);
      fitting = fit();
    }
    if (fitting === this.sceneIndex) return;
    this.sceneIndex = fitting;
    this.scheduler.destroy();
    this.scheduler = this.#makeScheduler();
    this.placement = EMPTY_PLACEMENT;
    this.moved = false;
    this.scheduler.layOut(store.open);
  }

  /** @param {import("../../shared_view_state.js").Change} change */
  #update(change) {
    const { store } = this;
    this.legend.update(store);
    if (change === "open") this.scheduler.layOut(store.open);
    if (change === "selected") this.announcer.textContent = announcement(store);
    if (change === "reveal") {
      this.scheduler.whenPlaced(() => this.#bringIntoView(store.selected, true));
    }
    if (change === "focus") this.zoomToGroup(store.focused);
    if (change === "colorBy") this.coloring = makeColoring(store.sceneIndex, store.colorBy);
    if (change === "view" || change === "colorBy") this.#resize();
    this.schedule();
  }

  /** Draw in the next animation frame. */
  schedule() {
    this.frame ||= requestAnimationFrame(() => this.#draw());
  }

  /** Draw with the palette of a new theme. */
  restyle() {
    this.legend.draw(this.palette());
    this.minimap.draw(this.store.scene, this.placement, this.palette());
    this.schedule();
  }

  destroy() {
    this.scheduler.destroy();
    cancelAnimationFrame(this.frame);
    this.resizer.disconnect();
  }

  #resize() {
    this.legend.draw(this.palette());
    const { clientWidth, clientHeight } = this.canvas;
    if (!clientWidth || (clientWidth === this.width && clientHeight === this.height)) return;
    this.camera.x -= (clientWidth - this.width) / 2 / this.camera.scale;
    this.width = clientWidth;
    this.height = clientHeight;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(clientWidth * ratio);
    this.canvas.height = Math.round(clientHeight * ratio);
    this.#adapt();
    if (!this.moved && this.placement !== EMPTY_PLACEMENT) this.camera = initialCamera(this);
    this.#applyPendingFit();
    // Not in the next frame: a canvas is blank after it was resized.
    this.#draw();
  }

  /**
   * Display a layout. The group that was opened or closed keeps its position on screen.
   *
   * @param {import("../../layout/coordinates.js").Placement} placement
   */
  #show(placement) {
    const before = this.placement;
    const cameraBefore = { ...this.camera };
    const wasWhole = before !== EMPTY_PLACEMENT && this.#isAcross(graphRect(this));
    this.placement = placement;
    this.hovered = null;
    this.tooltip.hidden = true;
    this.minimap.draw(this.store.scene, placement, this.palette());
    this.countDrawn();
    if (before === EMPTY_PLACEMENT) {
      if (this.width) this.camera = initialCamera(this);
    } else {
      this.moved = true;
      const { anchor } = this.store;
      const [from, to] = [findBox(before, anchor), findBox(placement, anchor)];
      if (from && to) {
        this.camera.x += to.x - from.x;
        this.camera.y += to.y - from.y;
      }
      this.#showWhole(to, wasWhole);
      this.offsets = boxOffsets(before, cameraBefore, placement, this.camera);
      this.transitionStart = performance.now();
    }
    this.schedule();
  }

  /**
   * @param {import("./camera.js").Rect} rect
   * @returns {boolean} whether it is between the left and the right of the view
   */
  #isAcross({ x, w }) {
    const { camera, width } = this;
    return x >= camera.x && x + w <= camera.x + width / camera.scale;
  }

  /** Write how many nodes are drawn. */
  countDrawn() {
    this.count.textContent = drawnNodes(this.store, this.placement.boxes);
  }

  /**
   * Move the camera so that the group that was opened or closed is in view, as large as is readable,
   * and so that nothing is blank at a side of a part of the graph that is out of view.
   *
   * @param {import("../../layout/coordinates.js").Box | undefined} box of the group
   * @param {boolean} wasWhole whether nothing was out of view at the sides
   */
  #showWhole(box, wasWhole) {
    const { width, height } = this;
    if (!box || !width) return;
    const { x: left, w } = graphRect(this);
    const rect = wasWhole ? { ...rectOf(box), x: left, w } : rectOf(box);
    const { scale } = this.camera;
    // A group that is in view keeps its place.
    if (this.#isAcross(rect)) return;
    const across = fitTo({ ...rect, h: 1 }, width, height).scale;
    const factor = Math.min(1, Math.max(READABLE, across) / scale);
    const near = zoomAt(this.camera, factor, 0, (rect.y - this.camera.y) * scale);
    const whole = graphRect(this);
    const camera = clampTo(whole, moveInto(near, rect, width, height), width, height);
    // What fits is in the middle. A header that is in view keeps its height.
    const fits = fitTo({ ...whole, h: 1 }, width, height).scale >= camera.scale;
    const down = (rect.y - near.y) * near.scale;
    this.camera = {
      ...camera,
      x: fits ? centered(whole, width, height, camera.scale).x : camera.x,
      y: down >= 0 && down < height - 30 ? near.y : camera.y,
    };
  }

  #draw() {
    this.frame = 0;
    if (!this.width || this.placement === EMPTY_PLACEMENT) return;
    const ctx = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    const ratio = window.devicePixelRatio || 1;
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    const { camera, placement, width, height } = this;
    const elapsed = (performance.now() - this.transitionStart) / TRANSITION_MS;
    const progress = this.offsets.size ? elapsed : 1;
    if (progress >= 1) this.offsets.clear();
    // For programs that drive the page.
    this.canvas.dataset["camera"] = `${camera.x} ${camera.y} ${camera.scale}`;
    Object.assign(this.canvas, { drawn: placement.boxes });
    const family = getComputedStyle(this.canvas).fontFamily;
    const pen = { ctx, family, palette: this.palette(), scale: camera.scale };
    paint(pen, this.look(clamp(progress, 0, 1)));
    const view = { x: camera.x, y: camera.y, w: width / camera.scale, h: height / camera.scale };
    this.minimap.mark(view, placement, pen.palette);
    this.breadcrumbs.update(placement, view);
    if (this.offsets.size) this.schedule();
  }

  /**
   * Return everything that a picture of the view depends on.
   *
   * @param {number} progress of the transition, from 0 to 1
   * @returns {import("./paint/graph.js").Look}
   */
  look(progress) {
    const { selected, time, savedForm, gradientPath, proven, station, open } = this.store;
    const { sceneIndex, camera, placement, hovered, coloring, width, height } = this;
    const rest = (1 - progress) ** 3;
    const offsets = new Map();
    for (const [key, { x, y }] of this.offsets) offsets.set(key, { x: x * rest, y: y * rest });
    const { matches } = this.store;
    const state = { selected, hovered, matches, time, savedForm, gradientPath, coloring };
    const answer = { proven, station, open };
    const linesAlpha = progress ** 2;
    return {
      sceneIndex,
      placement,
      camera,
      ...state,
      ...answer,
      offsets,
      linesAlpha,
      width,
      height,
    };
  }

  /**
   * Return the part of the view that contains boxes, for a picture without margins around them.
   *
   * @returns {Pick<import("../registry.js").Picture, "size" | "draw">}
   */
  content() {
    const { camera } = this;
    const rect = graphRect(this);
    const crop = (
      /** @type {number} */ from,
      /** @type {number} */ start,
      /** @type {number} */ length,
      /** @type {number} */ view,
    ) => {
      const margin = 16 / camera.scale;
      const low = Math.max(from, start - margin);
      return {
        low,
        size: Math.max(1, Math.min(from + view / camera.scale, start + length + margin) - low),
      };
    };
    const [x, y] = [
      crop(camera.x, rect.x, rect.w, this.width),
      crop(camera.y, rect.y, rect.h, this.height),
    ];
    const size = {
      width: Math.ceil(x.size * camera.scale),
      height: Math.ceil(y.size * camera.scale),
    };
    const look = { ...this.look(1), ...size, camera: { ...camera, x: x.low, y: y.low } };
    return { size, draw: ({ pen }) => paint({ ...pen, scale: camera.scale }, look) };
  }

  /**
   * @param {number} x in world coordinates
   * @param {number} y
   */
  #centerOn(x, y) {
    this.moved = true;
    this.camera.x = x - this.width / this.camera.scale / 2;
    this.camera.y = y - this.height / this.camera.scale / 2;
    this.schedule();
  }

  /**
   * Fit a group into the view, after the pending layout.
   *
   * @param {number} group
   */
  zoomToGroup(group) {
    this.scheduler.whenPlaced(() => this.#fitGroup(group));
  }

  /** @param {number} group */
  #fitGroup(group) {
    const box = findBox(this.placement, { kind: "group", index: group });
    this.moved = true;
    this.pendingFit = box ? rectOf(box) : graphRect(this);
    this.#resize();
    if (this.width) this.#applyPendingFit();
  }

  #applyPendingFit() {
    if (!this.pendingFit) return;
    this.camera = fitTo(this.pendingFit, this.width, this.height);
    this.pendingFit = null;
    this.schedule();
  }

  /** Fit the entire graph into the view. */
  fit() {
    this.zoomToGroup(0);
  }

  /**
   * @param {number} factor
   * @param {number} x fixed point, in screen coordinates
   * @param {number} y
   */
  zoom(factor, x, y) {
    this.moved = true;
    this.camera = zoomAt(this.camera, factor, x, y);
    this.schedule();
  }

  /**
   * @param {number} dx in screen coordinates
   * @param {number} dy
   */
  pan(dx, dy) {
    this.moved = true;
    this.camera.x -= dx / this.camera.scale;
    this.camera.y -= dy / this.camera.scale;
    this.schedule();
  }

  /**
   * Return the world coordinates of a point of the canvas.
   *
   * @param {number} x
   * @param {number} y
   * @returns {[number, number]}
   */
  worldAt(x, y) {
    return [this.camera.x + x / this.camera.scale, this.camera.y + y / this.camera.scale];
  }

  /**
   * Move the selection along an edge or to the nearest item.
   *
   * @param {import("./arrow_keys.js").Direction} direction
   */
  step(direction) {
    const { sceneIndex, open, selected } = this.store;
    const next = stepFrom(sceneIndex, this.placement, open, selected, direction);
    this.store.set("selected", next);
    this.#bringIntoView(next, false);
  }

  /**
   * @param {Item | null} item
   * @param {boolean} readable whether to zoom in if text is too small to read
   */
  #bringIntoView(item, readable) {
    const box = findBox(this.placement, item);
    if (!box || !this.width) return;
    const rect = rectOf(box);
    const near =
      readable && this.moved && this.camera.scale < READABLE
        ? centered(rect, this.width, this.height, 0.9)
        : this.camera;
    const camera = moveInto(near, rect, this.width, this.height);
    // A camera that need not move goes on adapting to the size of the view.
    const { x, y, scale } = this.camera;
    if (camera.x === x && camera.y === y && camera.scale === scale) return;
    this.moved = true;
    this.camera = camera;
    this.schedule();
  }

  /**
   * Highlight an item's neighbors and show its tooltip.
   *
   * @param {Item | null} item
   * @param {number} x
   * @param {number} y
   * @param {number} [part] item in the picture of a compiled region
   */
  hover(item, x, y, part = -1) {
    this.hovered = item;
    this.tooltip.hidden = !item;
    if (item) {
      const { scene } = this.store;
      const lines = part < 0 ? summarizeItem(scene, item) : describePart(scene, part);
      placeTooltip(this.tooltip, lines, x, y + this.canvas.offsetTop, this.width, this.height);
    }
    this.schedule();
  }
}
