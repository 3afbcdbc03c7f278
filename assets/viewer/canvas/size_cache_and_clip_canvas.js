// @ts-check
/** Sizes a canvas to its container, caches its picture below an overlay, and clips what is painted. */

/** @typedef {import("./text_fitted_to_width.js").Pen} Pen */
/** @typedef {import("./theme.js").Palette} Palette */

/** @typedef {{pen: Pen, width: number, height: number}} Drawing */

/**
 * Fit a canvas to its container and clear it.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {Palette} palette
 * @returns {Drawing | null} null while the canvas is hidden
 */
export function startDrawing(canvas, palette) {
  const { clientWidth: width, clientHeight: height } = /** @type {HTMLElement} */ (
    canvas.parentElement
  );
  if (!width || !height) return null;
  const ratio = window.devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  const ctx = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  // Setting the size, even the same one, allocates the canvas again.
  if (canvas.width === wide && canvas.height === high && ctx.reset) ctx.reset();
  else Object.assign(canvas, { width: wide, height: high });
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  const family = getComputedStyle(canvas).fontFamily;
  return { pen: { ctx, palette, family, scale: 1 }, width, height };
}

/** A canvas whose picture is kept while only what is painted over it changes. */
export class KeptDrawing {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.kept = document.createElement("canvas");
  }

  /**
   * @param {Palette} palette
   * @param {boolean} isSame whether the picture has not changed since it was painted
   * @param {(drawing: Drawing) => void} paint
   * @param {(drawing: Drawing) => void} paintOver
   */
  draw(palette, isSame, paint, paintOver) {
    const { canvas, kept } = this;
    const drawing = startDrawing(canvas, palette);
    if (!drawing) return;
    const { width, height } = canvas;
    if (isSame && kept.width === width && kept.height === height) {
      drawing.pen.ctx.drawImage(kept, 0, 0, drawing.width, drawing.height);
    } else {
      paint(drawing);
      Object.assign(kept, { width, height });
      /** @type {CanvasRenderingContext2D} */ (kept.getContext("2d")).drawImage(canvas, 0, 0);
    }
    paintOver(drawing);
  }
}

/** @typedef {{left: number, top: number, right: number, bottom: number}} Extent */

/**
 * Paint with everything outside of a rectangle cut off.
 *
 * @param {Pen} pen
 * @param {Extent} extent
 * @param {() => void} paint
 */
export function clipped({ ctx }, { left, top, right, bottom }, paint) {
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, right - left, bottom - top);
  ctx.clip();
  paint();
  ctx.restore();
}
