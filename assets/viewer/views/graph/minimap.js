// @ts-check
/** The minimap: the entire graph, with the part in view marked. */

import { setStroke } from "../../canvas/shapes.js";
import { h, listen } from "../../dom.js";
import { mix } from "../../canvas/theme.js";

const WIDTH = 104;
const MAX_HEIGHT = 128;
const MARGIN = 6;

export class Minimap {
  /** @param {(x: number, y: number) => void} centerOn centers the view on a point of the graph */
  constructor(centerOn) {
    this.canvas = h("canvas", { attrs: { "aria-hidden": "true" } });
    this.element = h("div", "agv-minimap", this.canvas);
    this.background = document.createElement("canvas");
    this.scale = 1;
    this.height = MAX_HEIGHT;
    this.left = 0;
    this.top = 0;
    const follow = (/** @type {PointerEvent} */ event) => {
      if (!(event.buttons & 1)) return;
      const box = this.canvas.getBoundingClientRect();
      const x = ((event.clientX - box.left) * WIDTH) / box.width;
      const y = ((event.clientY - box.top) * this.height) / box.height;
      centerOn((x - this.left) / this.scale, (y - this.top) / this.scale);
      event.stopPropagation();
    };
    listen(this.canvas, "pointerdown", (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      follow(event);
    });
    listen(this.canvas, "pointermove", follow);
  }

  /**
   * Draw the boxes of a placement, once for each placement.
   *
   * @param {import("../../types.js").Scene} scene
   * @param {import("../../layout/coordinates.js").Placement} placement
   * @param {import("../../canvas/theme.js").Palette} palette
   */
  draw(scene, placement, palette) {
    const ratio = window.devicePixelRatio || 1;
    const roomX = (WIDTH - 2 * MARGIN) / placement.width;
    const roomY = (MAX_HEIGHT - 2 * MARGIN) / placement.height;
    this.scale = Math.min(roomX, roomY, 0.25);
    this.height = Math.round(placement.height * this.scale) + 2 * MARGIN;
    for (const canvas of [this.canvas, this.background]) {
      canvas.width = WIDTH * ratio;
      canvas.height = this.height * ratio;
    }
    this.canvas.style.width = `${WIDTH}px`;
    this.canvas.style.height = `${this.height}px`;
    this.left = (WIDTH - placement.width * this.scale) / 2;
    this.top = MARGIN;
    const ctx = /** @type {CanvasRenderingContext2D} */ (this.background.getContext("2d"));
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.translate(this.left, this.top);
    this.#paintBoxes(ctx, scene, placement, palette);
  }

  /**
   * @param {CanvasRenderingContext2D} ctx
   * @param {import("../../types.js").Scene} scene
   * @param {import("../../layout/coordinates.js").Placement} placement
   * @param {import("../../canvas/theme.js").Palette} palette
   */
  #paintBoxes(ctx, scene, placement, palette) {
    const { scale } = this;
    /** @type {Map<string, string>} */
    const mixed = new Map();
    let lastSpot = "";
    for (const box of placement.boxes) {
      const item = box.kind === "node" ? scene.nodes[box.ref] : scene.groups[box.ref];
      let color = box.kind === "node" ? palette.backward : palette.text3;
      if ("checkpointed" in item && item.checkpointed) color = palette.recompute;
      if (item.error) color = palette.mutation;
      const share = box.kind === "frame" ? 0.07 : item.error ? 1 : item.state === "ran" ? 0.6 : 0.3;
      const look = `${color}${share}`;
      // Boxes of the same look on one pixel are drawn once.
      const spot = `${Math.round(box.x * scale)},${Math.round(2 * box.y * scale)}${look}`;
      if (spot === lastSpot) continue;
      lastSpot = spot;
      if (!mixed.has(look)) mixed.set(look, mix(color, palette.surface, share));
      ctx.fillStyle = /** @type {string} */ (mixed.get(look));
      const height = Math.max(box.height * scale, 0.7);
      ctx.fillRect(box.x * scale, box.y * scale, Math.max(box.width * scale, 0.7), height);
    }
  }

  /**
   * Mark the part in view. The minimap is hidden while the entire graph is in view.
   *
   * @param {import("./camera.js").Rect} view
   * @param {import("../../layout/coordinates.js").Placement} placement
   * @param {import("../../canvas/theme.js").Palette} palette
   */
  mark(view, placement, palette) {
    const entire =
      view.x <= 1 &&
      view.y <= 1 &&
      view.x + view.w >= placement.width - 1 &&
      view.y + view.h >= placement.height - 1;
    this.element.hidden = entire;
    if (entire) return;
    const ratio = window.devicePixelRatio || 1;
    const ctx = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.clearRect(0, 0, this.canvas.width, this.canvas.height);
    ctx.drawImage(this.background, 0, 0);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    const left = Math.max(1, this.left + view.x * this.scale);
    const top = Math.max(1, this.top + view.y * this.scale);
    const right = Math.min(WIDTH - 1, this.left + (view.x + view.w) * this.scale);
    const bottom = Math.min(this.height - 1, this.top + (view.y + view.h) * this.scale);
    setStroke(ctx, palette.backward, 1.2);
    ctx.strokeRect(left, top, Math.max(3, right - left), Math.max(3, bottom - top));
  }
}
