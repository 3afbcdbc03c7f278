// @ts-check
/** A canvas that shows the visible part of a picture larger than itself, with native scrolling. */

import { startDrawing } from "../canvas/size_cache_and_clip_canvas.js";
import { h, listen } from "../dom.js";
import { placeTooltip } from "../shell/place_tooltip.js";

/** @typedef {import("../canvas/size_cache_and_clip_canvas.js").Drawing} Drawing */
/** @typedef {import("../canvas/theme.js").Palette} Palette */

/**
 * @typedef {object} Picture
 * @property {string} label the accessible name
 * @property {(width: number, height: number) => {width: number, height: number}} size of the whole
 *   picture, in a viewport of that size
 * @property {(drawing: Drawing, left: number, top: number) => void} paint the part at a position
 * @property {(x: number, y: number) => (Node | string)[] | null} tooltip at a point of the viewport
 * @property {(x: number, y: number) => void} [click]
 */

export class VirtualCanvas {
  #frame = 0;

  /**
   * @param {Picture} picture
   * @param {() => Palette} palette
   */
  constructor(picture, palette) {
    this.picture = picture;
    this.palette = palette;
    this.canvas = h("canvas", { attrs: { role: "img", "aria-label": picture.label } });
    this.tooltip = h("div", "agv-tooltip agv-float");
    this.tooltip.hidden = true;
    this.frame = h("div", "agv-run-frame", this.canvas);
    this.spacer = h("div", "agv-run-spacer", this.frame);
    const attrs = { tabindex: 0, role: "group", "aria-label": picture.label };
    this.scroller = h("div", { class: "agv-run-scroll", attrs }, this.spacer);
    this.element = h("div", "agv-run-canvas", this.scroller, this.tooltip);
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.scroller);
    listen(this.scroller, "scroll", () => {
      this.tooltip.hidden = true;
      this.schedule();
    });
    listen(this.canvas, "pointermove", (event) => this.#hover(event));
    listen(this.canvas, "pointerleave", () => (this.tooltip.hidden = true));
    listen(this.canvas, "click", ({ offsetX, offsetY }) => picture.click?.(offsetX, offsetY));
  }

  /** Draw in the next frame. */
  schedule() {
    if (!this.#frame) {
      this.#frame = requestAnimationFrame(() => {
        this.#frame = 0;
        this.draw();
      });
    }
  }

  draw() {
    const { clientWidth: width, clientHeight: height } = this.scroller;
    if (!width || !height) return;
    const size = this.picture.size(width, height);
    this.spacer.style.width = `${Math.max(size.width, width)}px`;
    this.spacer.style.height = `${Math.max(size.height, 1)}px`;
    this.frame.style.width = `${width}px`;
    this.frame.style.height = `${Math.min(height, Math.max(size.height, 1))}px`;
    const drawing = startDrawing(this.canvas, this.palette());
    const { scrollLeft, scrollTop } = this.scroller;
    if (drawing) this.picture.paint(drawing, scrollLeft, scrollTop);
  }

  /** @param {PointerEvent} event */
  #hover({ offsetX, offsetY }) {
    const content = this.picture.tooltip(offsetX, offsetY);
    this.show(content, offsetX, offsetY);
  }

  /**
   * @param {(Node | string)[] | null} content
   * @param {number} x
   * @param {number} y
   */
  show(content, x, y) {
    this.tooltip.hidden = !content;
    if (!content) return;
    const { clientWidth, clientHeight } = this.element;
    placeTooltip(this.tooltip, content, x, y, clientWidth, clientHeight);
  }

  destroy() {
    this.observer.disconnect();
    cancelAnimationFrame(this.#frame);
  }
}
