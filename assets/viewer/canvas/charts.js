// @ts-check
/** What charts share: a canvas that is sharp, round numbers for an axis, the colour of a time. */

import { formatDuration } from "../scene/format.js";

/** @typedef {import("./text.js").Pen} Pen */
/** @typedef {import("./theme.js").Palette} Palette */

/**
 * Fit a canvas to its holder and clear it.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {Palette} palette
 * @returns {{pen: Pen, width: number, height: number} | null} null while it is not shown
 */
export function startDrawing(canvas, palette) {
  const { clientWidth: width, clientHeight: height } = /** @type {HTMLElement} */ (
    canvas.parentElement
  );
  if (!width || !height) return null;
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const ctx = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  const family = getComputedStyle(canvas).fontFamily;
  return { pen: { ctx, palette, family, scale: 1 }, width, height };
}

/**
 * Round values from `low` to `high`.
 *
 * @param {number} low
 * @param {number} high
 * @param {number} count about how many
 * @returns {number[]}
 */
export function ticks(low, high, count) {
  if (high <= low) return [low];
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10);
  const values = [];
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) values.push(value);
  return values;
}

/**
 * A time axis: "0", "5 ms", "10 ms"; of one that counts events, times at even distances.
 *
 * @param {Pen} pen
 * @param {(time: number) => number} x
 * @param {[start: number, end: number]} span
 * @param {number} y of the words' middle
 * @param {{top: number, bottom: number} | null} grid where lines go, if any
 * @param {import("../scene/time_axis.js").Clock} [clock]
 * @param {number | null} [taken] a time whose place something else stands at
 */
export function paintTimes(pen, x, [start, end], y, grid, clock, taken = null) {
  const { ctx, palette, family } = pen;
  ctx.font = `9.5px ${family}`;
  ctx.textBaseline = "middle";
  ctx.lineWidth = 1;
  const room = x(end) - x(start);
  const count = Math.max(2, room / 110);
  const times =
    clock?.axis === "events"
      ? ticks(clock.at(start), clock.at(end), count).map((place) => clock.timeAt(place))
      : ticks(start, end, count);
  for (const time of times) {
    const at = Math.round(x(time)) + 0.5;
    if (grid) {
      ctx.strokeStyle = palette.line;
      ctx.beginPath();
      ctx.moveTo(at, grid.top);
      ctx.lineTo(at, grid.bottom);
      ctx.stroke();
    }
    if (taken !== null && Math.abs(x(taken) - at) < 28) continue;
    ctx.textAlign = at - x(start) < 16 ? "left" : x(end) - at < 20 ? "right" : "center";
    ctx.fillStyle = palette.text2;
    ctx.fillText(time ? formatDuration(time) : "0 ms", at, y);
  }
}

/**
 * Hatch what lies behind the end of a torn recording.
 *
 * @param {Pen} pen
 * @param {{left: number, top: number, right: number, bottom: number}} area
 */
export function paintTorn({ ctx, palette }, { left, top, right, bottom }) {
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, right - left, bottom - top);
  ctx.clip();
  ctx.strokeStyle = palette.line2;
  ctx.lineWidth = 1;
  ctx.beginPath();
  for (let x = left - (bottom - top); x < right; x += 6) {
    ctx.moveTo(x, bottom);
    ctx.lineTo(x + bottom - top, top);
  }
  ctx.stroke();
  ctx.restore();
  ctx.fillStyle = palette.text2;
  ctx.fillRect(left - 0.5, top, 1, bottom - top);
}

/**
 * The outline of a step curve.
 *
 * @param {CanvasRenderingContext2D} ctx
 * @param {import("../types.js").SceneMemory[]} points
 * @param {(time: number) => number} x
 * @param {(nbytes: number) => number} y
 * @param {[start: number, end: number]} span
 */
export function traceSteps(ctx, points, x, y, [start, end]) {
  let before = points.findLast((point) => point.time_ns <= start)?.nbytes ?? 0;
  ctx.beginPath();
  ctx.moveTo(x(start), y(before));
  for (const point of points) {
    if (point.time_ns < start || point.time_ns > end) continue;
    ctx.lineTo(x(point.time_ns), y(before));
    ctx.lineTo(x(point.time_ns), y(point.nbytes));
    before = point.nbytes;
  }
  ctx.lineTo(x(end), y(before));
}

/**
 * The hue of a span: kinds have the colours that they have everywhere.
 *
 * @param {Palette} palette
 * @param {string} kind
 * @returns {string}
 */
export function hueOfSpan(palette, kind) {
  if (kind === "backward" || kind === "node") return palette.backward;
  if (kind === "recompute") return palette.recompute;
  if (kind === "buffer" || kind === "buffers") return palette.mutation;
  return kind === "optimizer" || kind === "accumulate" ? palette.leaf : palette.text2;
}

/**
 * The part of a module's path that names a block: up to its first number, else its first part.
 *
 * @param {string} path
 * @returns {string} "h.3" of "h.3.attn.c_proj"
 */
export function blockOf(path) {
  const parts = path.split(".");
  const numbered = parts.findIndex((part) => /^\d+$/.test(part));
  return parts.slice(0, numbered < 0 ? 1 : numbered + 1).join(".");
}
