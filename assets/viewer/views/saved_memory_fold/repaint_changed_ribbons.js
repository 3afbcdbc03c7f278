// @ts-check
/** A canvas with the ribbons of a fold, which paints only those again that look different. */

import { xAt } from "./ribbon_shape.js";

/** @typedef {import("../../canvas/text_fitted_to_width.js").Pen} Pen */
/** @typedef {import("./ribbon_shape.js").Ribbon} Ribbon */

/** Bounds of what is painted again are multiples of it: whole pixels at all usual resolutions. */
const GRID = 4;

export class RibbonLayer {
  constructor() {
    this.canvas = document.createElement("canvas");
    /** Key of what all ribbons depend on: size, theme, fold. */
    this.common = "";
    /** @type {string[]} how each ribbon looks on the canvas */
    this.looks = [];
  }

  /**
   * Paint the ribbons into a picture.
   *
   * @param {import("../../canvas/size_cache_and_clip_canvas.js").Drawing} drawing
   * @param {import("./ribbon_shape.js").Area} area
   * @param {Ribbon[]} ribbons
   * @param {{common: string, looks: string[]}} state
   * @param {(pen: Pen, at: number) => void} paint one ribbon
   */
  paint({ pen, width, height }, area, ribbons, { common, looks }, paint) {
    const ratio = pen.ctx.getTransform().a;
    const all = `${common} ${width} ${height} ${ratio}`;
    const isNew = all !== this.common || looks.length !== this.looks.length;
    const ctx = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    if (isNew) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
      ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    const extents = ribbons.map((ribbon) => extentOf(area, ribbon));
    const changed = isNew
      ? [[0, width]]
      : joined(extents.filter((_, at) => looks[at] !== this.looks[at]));
    this.common = all;
    this.looks = looks;
    if (changed.length) {
      ctx.save();
      ctx.beginPath();
      for (const [left, right] of changed) ctx.rect(left, 0, right - left, height);
      ctx.clip();
      ctx.clearRect(0, 0, width, height);
      ribbons.forEach((_, at) => {
        const [left, right] = extents[at];
        if (changed.some(([from, to]) => left < to && right > from)) paint({ ...pen, ctx }, at);
      });
      ctx.restore();
    }
    pen.ctx.drawImage(this.canvas, 0, 0, this.canvas.width / ratio, this.canvas.height / ratio);
  }
}

/**
 * @param {import("./ribbon_shape.js").Area} area
 * @param {Ribbon} ribbon
 * @returns {number[]} left and right bound of its picture
 */
function extentOf(area, { top, waist, bottom }) {
  const xs = [...top, ...waist, ...bottom].map((position) => xAt(area, position));
  return [
    GRID * Math.floor(Math.min(...xs) / GRID - 1),
    GRID * Math.ceil(Math.max(...xs) / GRID + 1),
  ];
}

/**
 * @param {number[][]} extents
 * @returns {number[][]} those that overlap joined, from left to right
 */
function joined(extents) {
  /** @type {number[][]} */
  const found = [];
  for (const [left, right] of extents.sort((a, b) => a[0] - b[0])) {
    const last = found.at(-1);
    if (last && left <= last[1]) last[1] = Math.max(last[1], right);
    else found.push([left, right]);
  }
  return found;
}
