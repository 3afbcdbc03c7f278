// @ts-check
/** The timeline's rows, drawn. */

import { hueOfSpan, paintTimes, paintTorn, ticks, traceSteps } from "../../canvas/charts.js";
import { formatBytes, formatDuration } from "../../scene/format.js";
import { roundRect, widthOf, write } from "../../canvas/text.js";
import { mix } from "../../canvas/theme.js";

/** @typedef {import("../../canvas/text.js").Pen} Pen */
/** @typedef {import("./rows.js").Track} Track */
/** @typedef {import("./rows.js").Bar} Bar */
/** @typedef {[start: number, end: number]} Stretch */

export const LEFT = 150;
export const RIGHT = 18;
const TOP = 24;
const BAR = 15;
const STEP = 17;
const GAP = 11;
const CURVE = 92;

/**
 * @param {Track[]} tracks
 * @returns {number[]} where each begins, and where the curve does
 */
function topsOf(tracks) {
  const tops = [TOP + 6];
  for (const { rows } of tracks) tops.push(tops[tops.length - 1] + rows * STEP + GAP);
  return tops;
}

/**
 * @param {Track[]} tracks
 * @returns {number} of the whole picture
 */
export function heightOf(tracks) {
  return topsOf(tracks)[tracks.length] + CURVE + 18;
}

/**
 * @param {{pen: Pen, width: number, height: number}} drawing
 * @param {import("../../store.js").Store} store
 * @param {Track[]} tracks
 * @param {Stretch} view
 * @param {Stretch | null} chosen
 * @param {import("../../scene/time_axis.js").Clock} clock
 */
export function paintTracks({ pen, width, height }, store, tracks, view, chosen, clock) {
  const { ctx, palette } = pen;
  const plot = width - LEFT - RIGHT;
  const [first, last] = view.map(clock.at);
  const x = (/** @type {number} */ time) =>
    LEFT + ((clock.at(time) - first) / (last - first)) * plot;
  const tops = topsOf(tracks);
  paintTimes(pen, x, view, 12, { top: TOP, bottom: height - 12 }, clock);
  tracks.forEach((track, at) => {
    paintLabel(pen, track, tops[at]);
    ctx.fillStyle = palette.line;
    ctx.fillRect(0, tops[at + 1] - GAP / 2 - 1, width, 1);
  });
  ctx.save();
  ctx.beginPath();
  ctx.rect(LEFT - 1, 0, plot + 2, height);
  ctx.clip();
  tracks.forEach((track, at) => paintBars(pen, track, tops[at], x, view));
  paintCurve(pen, store.scene, tops[tracks.length], x, view);
  ctx.restore();
  paintScale(pen, store.scene, tops[tracks.length]);
  if (store.scene.summary.torn && view[1] >= store.atlas.end) {
    paintTorn(pen, { left: LEFT + plot, top: TOP, right: width, bottom: height - 12 });
  }
  if (chosen) paintChosen(pen, x, chosen, height, plot);
  if (store.time !== null && store.time >= view[0] && store.time <= view[1]) {
    ctx.fillStyle = palette.text;
    ctx.fillRect(x(store.time) - 0.7, 4, 1.4, height - 14);
  }
}

/**
 * @param {Pen} pen
 * @param {Track} track
 * @param {number} top
 */
function paintLabel(pen, { name, note, rows }, top) {
  const { palette } = pen;
  const kind = name === "nested" ? "backward" : name;
  const color = kind === "forward" ? palette.text : hueOfSpan(palette, kind);
  write(pen, name, 12, top + 8, { size: 11.5, weight: 600, color });
  const style = { size: 9.5, color: palette.text2, room: LEFT - 20 };
  if (rows > 1) write(pen, note, 12, top + 22, style);
  else {
    const after = 12 + widthOf(pen, name, 11.5, 600) + 6;
    write(pen, note, after, top + 8, { ...style, room: LEFT - 6 - after });
  }
}

/**
 * @param {Pen} pen
 * @param {Track} track
 * @param {number} top
 * @param {(time: number) => number} x
 * @param {Stretch} view
 */
function paintBars(pen, { bars }, top, x, view) {
  const { ctx, palette } = pen;
  /** @type {number[]} by row, how far the pixels are filled: bars too thin to tell are left out */
  const filled = [];
  for (const bar of bars) {
    if (bar.end < view[0] || bar.start > view[1]) continue;
    const left = x(bar.start);
    const right = x(bar.end);
    if (right - (filled[bar.row] ?? -Infinity) < 0.7) continue;
    filled[bar.row] = right;
    const y = top + bar.row * STEP;
    const hue = hueOfSpan(palette, bar.kind);
    if (bar.kind === "accumulate" || bar.start === bar.end) paintTick(ctx, left, y, hue);
    else paintBar(pen, bar, left, Math.max(1, right - left), y, hue);
  }
}

/**
 * @param {Pen} pen
 * @param {Bar} bar
 * @param {number} left
 * @param {number} width
 * @param {number} y
 * @param {string} hue
 */
function paintBar(pen, bar, left, width, y, hue) {
  const { ctx, palette } = pen;
  const again = bar.kind === "recompute";
  const gap = width > 4 ? 1 : 0;
  ctx.fillStyle = mix(hue, palette.surface, bar.faint ? 0.16 : again ? 0.2 : 0.3);
  if (width > 6) {
    roundRect(ctx, left, y, width - gap, BAR, 2.5);
    ctx.fill();
  } else ctx.fillRect(left, y, width - gap * 0.5, BAR);
  if (again && width > 6) {
    ctx.setLineDash([3, 2]);
    ctx.lineWidth = 1;
    ctx.strokeStyle = hue;
    ctx.stroke();
    ctx.setLineDash([]);
  }
  const from = Math.max(left, LEFT);
  const words = shortest(pen, bar, left + width - from - 8);
  if (!words) return;
  const color = bar.kind === "module" || bar.kind === "forward" ? palette.text : hue;
  write(pen, words, from + 4, y + BAR / 2, { size: 10, weight: bar.faint ? 400 : 600, color });
}

/**
 * As much of a bar's name as fits: all of it, what stands before a comma or its last parts, nothing.
 *
 * @param {Pen} pen
 * @param {Bar} bar
 * @param {number} room
 * @returns {string}
 */
function shortest(pen, bar, room) {
  if (room < 6) return "";
  const [head, ...more] = bar.label.split(", ");
  const parts = more.length ? [head] : bar.label.split(".");
  const weight = bar.faint ? 400 : 600;
  const names = [bar.label, parts.slice(-2).join("."), parts[parts.length - 1]];
  return names.find((name) => widthOf(pen, name, 10, weight) <= room) ?? "";
}

/**
 * @param {CanvasRenderingContext2D} ctx
 * @param {number} x
 * @param {number} y
 * @param {string} hue
 */
function paintTick(ctx, x, y, hue) {
  ctx.fillStyle = hue;
  ctx.beginPath();
  ctx.moveTo(x - 3, y + 2);
  ctx.lineTo(x + 3, y + 2);
  ctx.lineTo(x, y + 7);
  ctx.fill();
  ctx.fillRect(x - 0.5, y + 6, 1, 8);
}

/**
 * @param {Pen} pen
 * @param {import("../../types.js").Scene} scene
 * @param {number} top
 * @param {(time: number) => number} x
 * @param {Stretch} view
 */
function paintCurve({ ctx, palette }, scene, top, x, view) {
  const y = heightIn(scene, top);
  traceSteps(ctx, scene.memory, x, y, view);
  ctx.strokeStyle = palette.saved;
  ctx.lineWidth = 1.5;
  ctx.lineJoin = "round";
  ctx.stroke();
  ctx.lineTo(x(view[1]), y(0));
  ctx.lineTo(x(view[0]), y(0));
  ctx.fillStyle = `${palette.saved}29`;
  ctx.fill();
}

/**
 * @param {import("../../types.js").Scene} scene
 * @param {number} top
 * @returns {(nbytes: number) => number}
 */
function heightIn(scene, top) {
  return (nbytes) => top + CURVE - (nbytes / (scene.summary.peak_nbytes || 1)) * (CURVE - 8);
}

/**
 * @param {Pen} pen
 * @param {import("../../types.js").Scene} scene
 * @param {number} top
 */
function paintScale(pen, scene, top) {
  const { palette } = pen;
  const peak = scene.summary.peak_nbytes;
  write(pen, "saved memory", 12, top + 8, { size: 11.5, weight: 600, color: palette.saved });
  const words = peak ? `peak ${formatBytes(peak)}` : "none";
  write(pen, words, 12, top + 22, { size: 9.5, color: palette.text2 });
  const y = heightIn(scene, top);
  for (const nbytes of ticks(0, peak, 3)) {
    if (y(nbytes) < top + 10 && nbytes < peak * 0.9) continue;
    write(pen, formatBytes(nbytes), LEFT - 6, y(nbytes), {
      size: 9.5,
      color: palette.text2,
      align: "right",
    });
  }
}

/**
 * @param {Pen} pen
 * @param {(time: number) => number} x
 * @param {Stretch} chosen
 * @param {number} height
 * @param {number} plot
 */
function paintChosen(pen, x, chosen, height, plot) {
  const { ctx, palette } = pen;
  const left = Math.max(LEFT, x(chosen[0]));
  const right = Math.min(LEFT + plot, x(chosen[1]));
  if (right <= left) return;
  ctx.fillStyle = `${palette.backward}1c`;
  ctx.fillRect(left, TOP, right - left, height - TOP - 12);
  ctx.strokeStyle = palette.backward;
  ctx.lineWidth = 1.4;
  ctx.strokeRect(left, TOP, right - left, height - TOP - 12);
  const words = formatDuration(chosen[1] - chosen[0]);
  const wide = Math.max(right - left, widthOf(pen, words, 10, 600) + 12);
  const middle = (left + right) / 2;
  ctx.fillStyle = palette.backward;
  roundRect(ctx, middle - wide / 2, 3, wide, 17, 3);
  ctx.fill();
  write(pen, words, middle, 11.5, {
    size: 10,
    weight: 600,
    color: palette.surface,
    align: "center",
  });
}

/**
 * The innermost bar at a point.
 *
 * @param {Track[]} tracks
 * @param {Stretch} view
 * @param {number} plot width
 * @param {number} px
 * @param {number} py
 * @param {import("../../scene/time_axis.js").Clock} clock
 * @returns {Bar | null}
 */
export function barAt(tracks, view, plot, px, py, clock) {
  const tops = topsOf(tracks);
  const at = tracks.findIndex((_, i) => py >= tops[i] && py < tops[i + 1] - GAP / 2);
  if (at < 0) return null;
  const row = Math.floor((py - tops[at]) / STEP);
  const [first, last] = view.map(clock.at);
  const slack = (2 / plot) * (last - first);
  const place = first + ((px - LEFT) / plot) * (last - first);
  const [from, to] = [clock.timeAt(place - slack), clock.timeAt(place + slack)];
  const near = tracks[at].bars.filter(
    (bar) => bar.row === row && bar.start <= to && from <= bar.end,
  );
  near.sort((a, b) => a.end - a.start - (b.end - b.start));
  return near[0] ?? null;
}
