// @ts-check
/** Filled rectangles, paths of straight lines, and pens. */

/**
 * @param {any} ctx
 * @param {string} color
 * @param {number} x
 * @param {number} y
 * @param {number} width
 * @param {number} height
 */
export function fillBox(ctx, color, x, y, width, height) {
  ctx.fillStyle = color;
  ctx.fillRect(x, y, width, height);
}

/**
 * Begin a path along points; the caller fills or strokes it.
 *
 * @param {any} ctx
 * @param {(readonly number[])[]} points each x and y
 */
export function tracePath(ctx, ...points) {
  ctx.beginPath();
  points.forEach((point, at) => ctx[at ? "lineTo" : "moveTo"](...point));
}

/**
 * @param {any} ctx
 * @param {string} color of lines
 * @param {number} width
 */
export function setStroke(ctx, color, width) {
  ctx.strokeStyle = color;
  ctx.lineWidth = width;
}
