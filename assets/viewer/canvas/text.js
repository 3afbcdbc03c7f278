// @ts-check
/** Text on a canvas, shortened to the available width; rounded rectangles. */

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
 * @property {number} [room] the text is shortened to this width
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
  if (style.size * pen.scale < 4) return;
  const { ctx } = pen;
  const font = `${style.weight ?? 400} ${style.size}px ${pen.family}`;
  ctx.font = font;
  ctx.textAlign = style.align ?? "left";
  ctx.textBaseline = "middle";
  ctx.fillStyle = style.color;
  const fitted = style.room === undefined ? text : shorten(ctx, font, text, style.room);
  ctx.fillText(fitted, x, y + 0.5);
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
  const font = `${weight} ${size}px ${pen.family}`;
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
 * @returns {string}
 */
function shorten(ctx, font, text, room) {
  if (cachedWidth(ctx, font, text) <= room) return text;
  let low = 0;
  let high = text.length;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (cachedWidth(ctx, font, `${text.slice(0, middle)}…`) <= room) low = middle;
    else high = middle - 1;
  }
  return low ? `${text.slice(0, low)}…` : "";
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
