// @ts-check
/** Traces a curve of bytes in steps over time. */

import { columnOf } from "../payload/lazy_rows.js";

/**
 * Trace a step curve as the current path.
 *
 * @param {CanvasRenderingContext2D} ctx
 * @param {{time_ns: number, nbytes: number}[]} points
 * @param {(time: number) => number} x
 * @param {(nbytes: number) => number} y
 * @param {[start: number, end: number]} span
 */
export function traceSteps(ctx, points, x, y, [start, end]) {
  const [times, sizes] = [columnOf(points, "time_ns"), columnOf(points, "nbytes")];
  let at = 0;
  let before = 0;
  for (; times[at] <= start; at++) before = sizes[at];
  ctx.beginPath();
  ctx.moveTo(x(start), y(before));
  for (; times[at] <= end; at++) {
    const left = x(times[at]);
    ctx.lineTo(left, y(before));
    ctx.lineTo(left, y(sizes[at]));
    before = sizes[at];
  }
  ctx.lineTo(x(end), y(before));
}
