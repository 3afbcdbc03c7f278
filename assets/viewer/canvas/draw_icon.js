// @ts-check
/** Draws glyphs on a canvas or as SVG elements. */

import { GLYPHS } from "./icon_paths.js";

/** @typedef {import("./icon_paths.js").Glyph} Glyph */
/** @typedef {import("./icon_paths.js").GlyphName} GlyphName */

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

/**
 * Paint a glyph on a canvas, centered at (x, y).
 *
 * @param {CanvasRenderingContext2D} ctx
 * @param {GlyphName} name
 * @param {number} x
 * @param {number} y
 * @param {number} size
 * @param {string} color
 * @param {string} [inner] color of the strokes on a filled glyph
 */
export function paintGlyph(ctx, name, x, y, size, color, inner) {
  drawGlyph(ctx, GLYPHS[name], x, y, size, color, inner);
}

/**
 * Return a glyph as an element, in the color of the text around it.
 *
 * @param {GlyphName | Glyph} glyph
 * @param {string} [extraClasses]
 * @returns {SVGSVGElement}
 */
export function icon(glyph, extraClasses) {
  return glyphElement(typeof glyph === "string" ? GLYPHS[glyph] : glyph, extraClasses);
}
