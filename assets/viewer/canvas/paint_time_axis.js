// @ts-check
/** Paints a time axis: round times, labels, marks of idle intervals, the end of a torn file. */

import { fillBox, setStroke, tracePath } from "./shapes.js";
import { formatCount, formatDuration, formatTimes } from "../scene/format_numbers_and_names.js";

/** @typedef {import("./text_fitted_to_width.js").Pen} Pen */

/**
 * Return round values from `low` to `high`.
 *
 * @param {number} low
 * @param {number} high
 * @param {number} count approximate number of values
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
 * Paint the labels of a time axis: "0 ms", "5 ms", "10 ms". On an axis of events they are equally
 * spaced, but not round.
 *
 * @param {Pen} pen
 * @param {(time: number) => number} x
 * @param {[start: number, end: number]} span
 * @param {number} y middle of the labels
 * @param {{top: number, bottom: number} | null} grid extent of the grid lines
 * @param {import("../scene/time_axis.js").TimeAxis} [axis]
 * @param {(number | null)[]} [taken] times at which something else is painted
 * @param {number} [origin] time that is zero, before which there are no labels
 */
export function paintTimes(pen, x, [start, end], y, grid, axis, taken = [], origin = 0) {
  const { ctx, palette, family } = pen;
  ctx.font = `9.5px ${family}`;
  ctx.textBaseline = "middle";
  ctx.lineWidth = 1;
  const room = x(end) - x(start);
  const count = Math.max(2, room / 110);
  const events =
    axis?.kind === "events" && ticks(axis.positionOf(start), axis.positionOf(end), count);
  const times = events
    ? events.map(axis.timeAt)
    : roundTimes(Math.max(start, origin), end, count, axis, origin);
  // Events are at equal distances, their times are not.
  const texts = events
    ? events.map((at) => `event ${formatCount(Math.round(at))}`)
    : formatTimes(times.map((time) => time - origin));
  const breaks = axis?.kind === "time" && grid ? axis.idle : [];
  /** @type {[number, number][]} */
  const labels = [];
  const write = (/** @type {string} */ text, /** @type {number} */ at, color = palette.text2) => {
    const width = ctx.measureText(text).width;
    const left = Math.max(x(start), Math.min(x(end) - width, at - width / 2));
    if (labels.some(([from, to]) => left < to + 6 && left + width > from - 6)) return false;
    labels.push([left, left + width]);
    ctx.textAlign = "left";
    ctx.fillStyle = color;
    ctx.fillText(text, left, y);
    return true;
  };
  for (const time of taken) if (time !== null) labels.push([x(time) - 22, x(time) + 22]);
  const lengthOf = (/** @type {number} */ i) => breaks[i + 1] - breaks[i];
  const longestFirst = [...breaks.keys()]
    .filter((i) => i % 2 === 0 && breaks[i + 1] >= start && breaks[i] <= end)
    .sort((a, b) => lengthOf(b) - lengthOf(a));
  for (const i of longestFirst) {
    const at = (x(Math.max(breaks[i], start)) + x(Math.min(breaks[i + 1], end))) / 2;
    paintBreak(pen, at, y, /** @type {{top: number, bottom: number}} */ (grid));
    const text = axis?.causes?.[i / 2] ?? `${formatDuration(lengthOf(i))} idle`;
    write(text, at, palette.text3);
  }
  for (const [i, time] of times.entries()) {
    const at = Math.round(x(time)) + 0.5;
    const written = write(time > origin || events ? texts[i] : "0 ms", at);
    if (!grid || !written) continue;
    ctx.strokeStyle = palette.line;
    tracePath(ctx, [at, grid.top], [at, grid.bottom]);
    ctx.stroke();
  }
}

/**
 * Return round times that are apart on an axis with short idle intervals.
 *
 * @param {number} start
 * @param {number} end
 * @param {number} count
 * @param {import("../scene/time_axis.js").TimeAxis | undefined} axis
 * @param {number} origin
 * @returns {number[]} round numbers after the origin
 */
function roundTimes(start, end, count, axis, origin) {
  if (!axis?.idle.length) {
    return ticks(start - origin, end - origin, count).map((time) => time + origin);
  }
  const length = axis.positionOf(end) - axis.positionOf(start);
  const [first, second] = ticks(0, length, count);
  const step = second - first || length;
  const apart = (0.7 * length) / count;
  const times = [];
  let last = -Infinity;
  for (let i = 0; i <= axis.idle.length; i += 2) {
    // Between two idle intervals.
    const from = Math.max(start, axis.idle[i - 1] ?? start);
    const until = Math.min(end, axis.idle[i] ?? end);
    let time = Math.ceil((from - origin) / step) * step + origin;
    for (; time <= until; time += step) {
      const at = axis.positionOf(time);
      if (at - last < apart) continue;
      times.push(time);
      last = at;
    }
  }
  return times;
}

/**
 * Paint the mark of a short idle interval: two slanted strokes.
 *
 * @param {Pen} pen
 * @param {number} x
 * @param {number} y of the axis labels
 * @param {{top: number, bottom: number}} grid
 */
function paintBreak({ ctx, palette }, x, y, grid) {
  ctx.strokeStyle = palette.line2;
  ctx.setLineDash([2, 3]);
  ctx.beginPath();
  for (const shift of [-2, 2]) {
    ctx.moveTo(Math.round(x + shift) + 0.5, grid.top);
    ctx.lineTo(Math.round(x + shift) + 0.5, grid.bottom);
  }
  ctx.stroke();
  ctx.setLineDash([]);
}

/**
 * Hatch the time after the end of a torn file.
 *
 * @param {Pen} pen
 * @param {{left: number, top: number, right: number, bottom: number}} area
 */
export function paintTorn({ ctx, palette }, { left, top, right, bottom }) {
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, right - left, bottom - top);
  ctx.clip();
  setStroke(ctx, palette.line2, 1);
  ctx.beginPath();
  for (let x = left - (bottom - top); x < right; x += 6) {
    ctx.moveTo(x, bottom);
    ctx.lineTo(x + bottom - top, top);
  }
  ctx.stroke();
  ctx.restore();
  fillBox(ctx, palette.text2, left - 0.5, top, 1, bottom - top);
}
