// @ts-check
/** A picture of the graph around what a finding is about, that needs no handling. */

import { startDrawing } from "../../canvas/size_cache_and_clip_canvas.js";
import { chartCanvas, h, onResize } from "../../dom.js";
import { EMPTY_PLACEMENT, LayoutScheduler } from "../../layout/request_latest_layout.js";
import { groupsAround } from "../../scene/scene_index.js";
import { initialCamera } from "./initial_camera.js";
import { fittingIndex } from "./leave_out_badges_and_ops_to_fit.js";
import { paint } from "./paint/graph.js";

export class GraphAroundFinding {
  /**
   * @param {import("../../shared_view_state.js").Store} store
   * @param {() => import("../../canvas/theme.js").Palette} palette
   */
  constructor(store, palette) {
    this.store = store;
    this.palette = palette;
    this.sceneIndex = store.sceneIndex;
    this.placement = EMPTY_PLACEMENT;
    this.open = store.open;
    /** @type {number | undefined} the node in the middle */
    this.focus = undefined;
    this.width = 0;
    this.height = 0;
    this.canvas = chartCanvas("The graph around the finding");
    this.element = h("div", "agv-finding-graph", this.canvas);
    this.resizer = onResize(this.element, () => this.show(this.focus));
  }

  destroy() {
    this.resizer.disconnect();
    this.scheduler?.destroy();
  }

  /** @param {number | undefined} node */
  show(node) {
    this.focus = node;
    const { clientWidth, clientHeight } = this.element;
    if (!clientWidth) return;
    [this.width, this.height] = [clientWidth, clientHeight];
    const { store } = this;
    const group = node === undefined ? 0 : store.scene.nodes[node].group;
    /** Indices of the open groups: those of the graph, and those around the node. */
    this.open = new Set([...store.open, ...groupsAround(store.sceneIndex, group), group]);
    this.sceneIndex = fittingIndex(store.sceneIndex, this.open, clientWidth, clientHeight, node);
    this.scheduler?.destroy();
    const place = (/** @type {typeof EMPTY_PLACEMENT} */ placement) => {
      this.placement = placement;
      this.draw();
    };
    this.scheduler = new LayoutScheduler(this.sceneIndex.scene, place, () => {});
    this.scheduler.layOut(this.open);
  }

  draw() {
    const drawing = startDrawing(this.canvas, this.palette());
    if (!drawing || this.placement === EMPTY_PLACEMENT) return;
    const { width, height, sceneIndex, placement, open } = this;
    const camera = initialCamera(this);
    const selected = /** @type {const} */ ({ kind: "node", index: this.focus ?? -1 });
    const state = { selected, hovered: null, matches: null, coloring: null, time: null };
    paint(
      { ...drawing.pen, scale: camera.scale },
      {
        ...state,
        sceneIndex,
        placement,
        camera,
        offsets: new Map(),
        linesAlpha: 1,
        savedForm: this.store.savedForm,
        gradientPath: null,
        proven: [],
        station: 0,
        open,
        width,
        height,
      },
    );
  }
}
