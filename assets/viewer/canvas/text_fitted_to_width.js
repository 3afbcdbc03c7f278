// @ts-check
/** Text on a canvas, shortened to the available width; the path of a rounded rectangle. */

import { setStroke } from "./shapes.js";

/** The smallest text in screen pixels. */
const MIN_SIZE = 9.5;
/** Text is enlarged at most by this factor; text that would need more is left out. */
const MAX_GROWTH = 1.75;

/** Text that is wider than its room by this factor is condensed; longer text is shortened. */
export const MAX_CONDENSED = 1.25;

/**
 * Return the size in world units at which a text is readable.
 *
 * @param {number} size
 * @param {number} scale
 * @returns {number} 0 if it is too small
 */
export function readableSize(size, scale) {
  const least = MIN_SIZE / (scale || 1);
  return least > size * MAX_GROWTH ? 0 : Math.max(size, least);
}

/** The end of a place, which is never cut: "ing.py:31" of "keyword_spotting.py:31". */
const LINE = /[^\s/]{0,6}:\d+$/;

/** @type {Map<string, number>} */
const widths = new Map();

/**
 * @typedef {object} Pen
 * @property {CanvasRenderingContext2D} ctx
 * @property {string} family font family of the host's user interface
 * @property {import("./theme.js").Palette} palette
 * @property {number} scale screen pixels per world unit
 */

/**
 * @typedef {object} TextStyle
 * @property {number} size
 * @property {string} color
 * @property {number} [weight]
 * @property {CanvasTextAlign} [align]
 * @property {string} [halo] color around the letters, on what they must not cover
 * @property {number} [room] the text is shortened to this width
 * @property {boolean} [middle] its middle is left out, and not its end
 */

/**
 * Write one line of text, vertically centered at y. Text too small to read is left out.
 *
 * @param {Pen} pen
 * @param {string} text
 * @param {number} x
 * @param {number} y
 * @param {TextStyle} style
 */
export function write(pen, text, x, y, style) {
  const size = readableSize(style.size, pen.scale);
  if (!size) return;
  const { ctx } = pen;
  const font = `${style.weight ?? 400} ${size}px ${pen.family}`;
  ctx.font = font;
  ctx.textAlign = style.align ?? "left";
  ctx.textBaseline = "middle";
  ctx.fillStyle = style.color;
  const { room } = style;
  if (style.halo) {
    setStroke(ctx, style.halo, 3);
    ctx.lineJoin = "round";
    ctx.strokeText(text, x, y + 0.5);
  }
  // A little too long: narrower letters are easier to read than a shorter text.
  if (room !== undefined && room > 0 && cachedWidth(ctx, font, text) <= room * MAX_CONDENSED) {
    ctx.fillText(text, x, y + 0.5, room);
    return;
  }
  const fits = room === undefined ? text : shorten(ctx, font, text, room, style.middle);
  ctx.fillText(fits, x, y + 0.5);
}

/**
 * Write one line of text on a background, so that it can be read over lines.
 *
 * @param {Pen} pen
 * @param {string} text
 * @param {number} x
 * @param {number} y
 * @param {TextStyle} style
 */
export function paintText(pen, text, x, y, style) {
  const height = style.size + 5;
  pen.ctx.fillStyle = `${pen.palette.canvas}e0`;
  const width = widthOf(pen, text, style.size, style.weight) + 6;
  roundRect(pen.ctx, x - 3, y - height / 2, width, height, 3);
  pen.ctx.fill();
  write(pen, text, x, y, style);
}

/**
 * Return the width of a text; cached for each font.
 *
 * @param {Pen} pen
 * @param {string} text
 * @param {number} size
 * @param {number} [weight]
 * @returns {number}
 */
export function widthOf(pen, text, size, weight = 400) {
  const font = `${weight} ${readableSize(size, pen.scale) || size}px ${pen.family}`;
  pen.ctx.font = font;
  return cachedWidth(pen.ctx, font, text);
}

/**
 * @param {CanvasRenderingContext2D} ctx
 * @param {string} font
 * @param {string} text
 * @returns {number}
 */
function cachedWidth(ctx, font, text) {
  const key = `${font}|${text}`;
  let width = widths.get(key);
  if (width === undefined) {
    if (widths.size > 20_000) widths.clear();
    width = ctx.measureText(text).width;
    widths.set(key, width);
  }
  return width;
}

/**
 * @param {CanvasRenderingContext2D} ctx
 * @param {string} font
 * @param {string} text
 * @param {number} room
 * @param {boolean} [middle] whether its middle is left out
 * @returns {string}
 */
function shorten(ctx, font, text, room, middle) {
  if (cachedWidth(ctx, font, text) <= room) return text;
  const [tail] = LINE.exec(text) ?? [""];
  const head = text.slice(0, text.length - tail.length);
  const cut = (/** @type {number} */ length) => {
    const end = middle ? length >> 1 : 0;
    return `${head.slice(0, length - end)}…${head.slice(head.length - end)}${tail}`;
  };
  let low = 0;
  let high = head.length;
  while (low < high) {
    const half = Math.ceil((low + high) / 2);
    if (cachedWidth(ctx, font, cut(half)) <= room) low = half;
    else high = half - 1;
  }
  return low ? cut(low) : "";
}

/**
 * @param {CanvasRenderingContext2D} ctx
 * @param {number} x
 * @param {number} y
 * @param {number} width
 * @param {number} height
 * @param {number} radius
 */
export function roundRect(ctx, x, y, width, height, radius) {
  ctx.beginPath();
  ctx.roundRect(x, y, width, height, radius);
}
