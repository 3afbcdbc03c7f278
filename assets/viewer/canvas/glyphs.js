// @ts-check
/** Draws glyphs, paths on a 16×16 grid, on a canvas or as an SVG element. */

/** @typedef {{stroke?: string, fill?: string}} Glyph */

/** @type {Glyph} */
export const CLOSE = { stroke: "M4.5 4.5l7 7M11.5 4.5l-7 7" };

/** @type {Glyph} */
export const FIT = { stroke: "M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10" };

/** @type {Glyph} */
export const PLUS = { stroke: "M8 3.5v9M3.5 8h9" };

/** @type {Glyph} */
export const MINUS = { stroke: "M3.5 8h9" };

/** @type {Glyph} */
export const COMPARE = { stroke: "M2 2.5h4.5v11H2ZM9.5 2.5H14v11H9.5ZM11.5 5.5v5M3.5 8h1.5" };

/** @type {Glyph} */
export const FAILED = {
  fill: "M15 8A7 7 0 1 1 1 8a7 7 0 0 1 14 0Z",
  stroke: "M5.5 5.5l5 5M10.5 5.5l-5 5",
};

/** @type {Map<string, Path2D>} */
const paths = new Map();

/**
 * Paint a glyph on a canvas, centered at (x, y).
 *
 * @param {CanvasRenderingContext2D} ctx
 * @param {Glyph} glyph
 * @param {number} x
 * @param {number} y
 * @param {number} size
 * @param {string} color
 * @param {string} [inner] color of the strokes on a filled glyph
 */
export function drawGlyph(ctx, glyph, x, y, size, color, inner = color) {
  const scale = size / 16;
  ctx.save();
  ctx.translate(x - size / 2, y - size / 2);
  ctx.scale(scale, scale);
  if (glyph.fill) {
    ctx.fillStyle = color;
    ctx.fill(pathOf(glyph.fill));
  }
  if (glyph.stroke) {
    ctx.setLineDash([]);
    ctx.lineWidth = 1.6 / Math.min(1, scale * 1.25);
    ctx.lineCap = ctx.lineJoin = "round";
    ctx.strokeStyle = glyph.fill ? inner : color;
    ctx.stroke(pathOf(glyph.stroke));
  }
  ctx.restore();
}

/**
 * @param {string} shape
 * @returns {Path2D}
 */
function pathOf(shape) {
  let path = paths.get(shape);
  if (!path) {
    // SvgContext needs the path's text.
    path = Object.assign(new Path2D(shape), { shape });
    paths.set(shape, path);
  }
  return path;
}

/**
 * Return a glyph as an element, in the color of the text around it.
 *
 * @param {Glyph} glyph
 * @param {string} [extraClasses]
 * @returns {SVGSVGElement}
 */
export function glyphElement(glyph, extraClasses = "") {
  const namespace = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(namespace, "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("class", `agv-icon ${extraClasses}`.trim());
  svg.setAttribute("aria-hidden", "true");
  const { fill, stroke } = glyph;
  for (const [className, shape] of [
    ["agv-icon-fill", fill],
    [fill ? "agv-icon-inner" : "agv-icon-line", stroke],
  ]) {
    if (!shape) continue;
    const path = document.createElementNS(namespace, "path");
    path.setAttribute("d", shape);
    path.setAttribute("class", /** @type {string} */ (className));
    svg.append(path);
  }
  return svg;
}
