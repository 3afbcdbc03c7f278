// @ts-check
/** Paints the timeline, and finds the bar at a point. */

import { fillBox, setStroke, tracePath } from "../../canvas/shapes.js";
import { clipped } from "../../canvas/size_cache_and_clip_canvas.js";
import { hueOfSpan, mix } from "../../canvas/theme.js";
import { paintTimes, paintTorn, ticks } from "../../canvas/paint_time_axis.js";
import { traceSteps } from "../../canvas/trace_step_curve.js";
import { dotted, formatBytes, formatDuration } from "../../scene/format_numbers_and_names.js";
import { roundRect, widthOf, write } from "../../canvas/text_fitted_to_width.js";
import { paintStation } from "../graph/paint/cause_step_numbers.js";

/** @typedef {import("../../canvas/text_fitted_to_width.js").Pen} Pen */
/** @typedef {import("./tracks_and_bars.js").Track} Track */
/** @typedef {import("./tracks_and_bars.js").Bar} Bar */
/** @typedef {import("../../scene/range_profile.js").TimeRange} TimeRange */

const RIGHT = 18;
const TOP = 24;
const BAR_HEIGHT = 15;
const ROW_HEIGHT = 17;
const TRACK_GAP = 11;
const CURVE_HEIGHT = 92;
/** Of a bar, in which a number fits. */
const LEAST_ROOM = 12;

/** @typedef {{left: number, width: number}} Plot where times are drawn, in pixels */

/**
 * @param {number} width of the canvas
 * @returns {Plot} with less room for labels in a narrow viewer
 */
export function plotOf(width) {
  const left = width < 460 ? 96 : 150;
  return { left, width: Math.max(1, width - left - RIGHT) };
}

/**
 * @param {Track[]} tracks
 * @returns {number[]} the top of each track, and last that of the memory curve
 */
function trackTops(tracks) {
  const tops = [TOP + 6];
  for (const { rows } of tracks) tops.push(tops[tops.length - 1] + rows * ROW_HEIGHT + TRACK_GAP);
  return tops;
}

/**
 * @param {Track[]} tracks
 * @returns {number} height of the timeline
 */
export function heightOf(tracks) {
  return trackTops(tracks)[tracks.length] + CURVE_HEIGHT + 18;
}

/**
 * @param {import("../../canvas/size_cache_and_clip_canvas.js").Drawing} drawing
 * @param {import("../../shared_view_state.js").Store} store
 * @param {Track[]} tracks
 * @param {import("../../shell/zoom_and_pan_time_axis.js").TimeWindow} window
 * @param {TimeRange | null} range the selected range
 */
export function paintTimeline({ pen, width, height }, store, tracks, window, range) {
  const { ctx, palette } = pen;
  const { view } = window;
  const { left, width: plot } = plotOf(width);
  const x = (/** @type {number} */ time) => window.x(time);
  const tops = trackTops(tracks);
  const step = store.scene.steps[store.step];
  const grid = { top: TOP, bottom: height - 12 };
  paintTimes(pen, x, view, 12, grid, window.axis, [], step?.start_ns);
  if (step && window.axis.kind === "time") {
    write(pen, `in step ${step.number}`, 12, 12, { size: 9.5, color: palette.text2 });
  }
  tracks.forEach((track, at) => {
    paintLabel(pen, track, tops[at], left);
    fillBox(ctx, palette.line, 0, tops[at + 1] - TRACK_GAP / 2 - 1, width, 1);
  });
  clipped(pen, { left: left - 1, top: 0, right: left + plot + 1, bottom: height }, () => {
    tracks.forEach((track, at) => paintBars(pen, track, tops[at], x, view, left));
    paintCurve(pen, store.scene, tops[tracks.length], x, view);
    const nodes = [...store.related.nodes].map((node) => store.scene.nodes[node]);
    paintSelected(pen, tracks, tops, x, nodes);
    for (const node of store.matches ?? []) {
      const { born_ns, runs_ns } = store.scene.nodes[node];
      for (const time of [born_ns, ...runs_ns.filter((_, at) => at % 2 === 0)]) {
        ctx.fillStyle = palette.path;
        if (time >= 0) ctx.fillRect(x(time) - 1, TOP - 4, 2, 8);
      }
    }
  });
  paintScale(pen, store.scene, tops[tracks.length], left);
  if (store.scene.summary.torn && view[1] >= store.sceneIndex.end) {
    paintTorn(pen, { left: left + plot, top: TOP, right: width, bottom: height - 12 });
  }
  if (range) paintRange(pen, x, range, height, plotOf(width));
  paintSteps(pen, store, window, height);
}

/**
 * @param {import("../../canvas/size_cache_and_clip_canvas.js").Drawing} drawing
 * @param {number | null} time that is replayed
 * @param {import("../../shell/zoom_and_pan_time_axis.js").TimeWindow} window
 */
export function paintTime({ pen: { ctx, palette }, height }, time, window) {
  const [from, to] = window.view;
  if (time === null || time < from || time > to) return;
  fillBox(ctx, palette.text, window.x(time) - 0.7, TOP - 4, 1.4, height - TOP - 6);
}

/**
 * Mark when the steps from a symptom to its cause happened.
 *
 * @param {Pen} pen
 * @param {import("../../shared_view_state.js").Store} store
 * @param {import("../../shell/zoom_and_pan_time_axis.js").TimeWindow} window
 * @param {number} height
 */
function paintSteps(pen, { proven, station }, window, height) {
  const { ctx, palette } = pen;
  /** @type {number[]} */
  const drawn = [];
  proven.forEach(({ time_ns }, at) => {
    if (time_ns < window.view[0] || time_ns > window.view[1]) return;
    const x = window.x(time_ns);
    fillBox(ctx, palette.path, x - 0.7, TOP, 1.4, height - TOP - 12);
    const overlapping = drawn.filter((other) => Math.abs(other - x) < 16).length;
    drawn.push(x);
    paintStation(pen, `${at + 1}`, x + overlapping * 17, TOP, 8, at === station);
  });
}

/**
 * @param {Pen} pen
 * @param {Track} track
 * @param {number} top
 * @param {number} plotLeft
 */
function paintLabel(pen, { name, note, numbered, rows }, top, plotLeft) {
  const { palette } = pen;
  const kind = name === "nested" ? "backward" : name;
  const color = kind === "forward" ? palette.text : hueOfSpan(palette, kind);
  write(pen, name, 12, top + 8, { size: 11.5, weight: 600, color });
  const style = { size: 9.5, color: palette.text2, room: plotLeft - 20 };
  if (rows > 1) write(pen, dotted([note, numbered]), 12, top + 22, style);
  else {
    const after = 12 + widthOf(pen, name, 11.5, 600) + 6;
    const room = plotLeft - 6 - after;
    if (widthOf(pen, note, 9.5) <= room) write(pen, note, after, top + 8, style);
  }
}

/**
 * @param {Pen} pen
 * @param {Track} track
 * @param {number} top
 * @param {(time: number) => number} x
 * @param {TimeRange} view
 * @param {number} plotLeft
 */
function paintBars(pen, { bars }, top, x, view, plotLeft) {
  const { ctx, palette } = pen;
  const plot = /** @type {[number, number]} */ ([plotLeft, x(view[1])]);
  const roomOf = (/** @type {Bar} */ { start, end }) =>
    Math.min(x(end), plot[1]) - Math.max(x(start), plotLeft) - 8;
  // Bars of a row have the same form: numbers alone if a name has no room in one of them.
  const isCut = (/** @type {Bar} */ bar) =>
    bar.number && roomOf(bar) >= LEAST_ROOM && !fitLabel(pen, bar, roomOf(bar));
  const numbered = new Set(bars.filter(isCut).map(({ row }) => row));
  /** @type {number[]} by row, the right end of the last bar: bars on one pixel are drawn once */
  const filled = [];
  for (const bar of bars) {
    if (bar.end < view[0] || bar.start > view[1]) continue;
    const left = x(bar.start);
    const right = x(bar.end);
    if (right - (filled[bar.row] ?? -Infinity) < 0.7) continue;
    filled[bar.row] = right;
    const y = top + bar.row * ROW_HEIGHT;
    const hue = hueOfSpan(palette, bar.kind);
    if (bar.kind === "accumulate" || bar.start === bar.end) paintTick(ctx, left, y, hue);
    else {
      const name = (numbered.has(bar.row) && bar.number) || fitLabel(pen, bar, roomOf(bar));
      paintBar(pen, bar, left, Math.max(1, right - left), y, hue, name, plotLeft);
    }
  }
}

/**
 * Mark the forward and the backward of the selection, with a line from one to the other.
 *
 * @param {Pen} pen
 * @param {Track[]} tracks
 * @param {number[]} tops
 * @param {(time: number) => number} x
 * @param {import("../../types.js").SceneNode[]} nodes
 */
function paintSelected({ ctx, palette }, tracks, tops, x, nodes) {
  const born = nodes.filter(({ born_ns }) => born_ns >= 0);
  const times = {
    forward: born.flatMap(({ born_ns, forward_ns }) => [born_ns, born_ns + forward_ns]),
    backward: nodes.flatMap(({ runs_ns }) => runs_ns.filter((time) => time >= 0)),
  };
  setStroke(ctx, palette.path, 1.6);
  const ends = tracks.flatMap(({ name, rows }, at) => {
    const found = times[/** @type {keyof typeof times} */ (name)] ?? [];
    if (!found.length) return [];
    const extent = found.reduce(
      ([low, high], time) => [Math.min(low, time), Math.max(high, time)],
      [Infinity, -Infinity],
    );
    const [left, right] = extent.map(x);
    const width = Math.max(3, right - left);
    // Lines above and below, so that none crosses a name.
    ctx.strokeRect(left - 1, tops[at] - 3, width + 2, 0);
    ctx.strokeRect(left - 1, tops[at] + rows * ROW_HEIGHT, width + 2, 0);
    return [{ x: left + width / 2, top: tops[at] - 2, bottom: tops[at] + rows * ROW_HEIGHT }];
  });
  const [from, to] = ends;
  if (!to) return;
  const middle = (from.bottom + to.top) / 2;
  ctx.beginPath();
  ctx.moveTo(from.x, from.bottom);
  ctx.quadraticCurveTo(from.x, middle, (from.x + to.x) / 2, middle);
  ctx.quadraticCurveTo(to.x, middle, to.x, to.top);
  ctx.stroke();
}

/**
 * @param {Pen} pen
 * @param {Bar} bar
 * @param {number} left
 * @param {number} width
 * @param {number} y
 * @param {string} hue
 * @param {string} name
 * @param {number} plotLeft from which on names are written
 */
function paintBar(pen, bar, left, width, y, hue, name, plotLeft) {
  const { ctx, palette } = pen;
  const isRecompute = bar.kind === "recompute";
  const gap = width > 4 ? 1 : 0;
  ctx.fillStyle = mix(
    hue,
    palette.surface,
    bar.faint ? 0.22 : isRecompute ? 0.2 : 1.9 * palette.nodeTint,
  );
  const from = Math.max(left, plotLeft);
  const label =
    widthOf(pen, name, 10, bar.faint ? 400 : 600) <= left + width - from - 4 ? name : "";
  if (bar.faint && bar.row > 1 && !label) {
    ctx.fillRect(left, y, width - gap * 0.5, 3);
    return;
  }
  if (width > 6) {
    roundRect(ctx, left, y, width - gap, BAR_HEIGHT, 2.5);
    ctx.fill();
  } else ctx.fillRect(left, y, width - gap * 0.5, BAR_HEIGHT);
  if (isRecompute && width > 6) {
    ctx.setLineDash([3, 2]);
    setStroke(ctx, hue, 1);
    ctx.stroke();
    ctx.setLineDash([]);
  }
  if (!label) return;
  write(pen, label, from + 4, y + BAR_HEIGHT / 2, {
    size: 10,
    weight: bar.faint ? 400 : 600,
    color: palette.text,
  });
}

/**
 * Return the name of a bar that fits: of a module, that in the module around it, the same in each
 * step; of another bar, its label or the part before a comma; of a step, at least its number.
 *
 * @param {Pen} pen
 * @param {Bar} bar
 * @param {number} room
 * @returns {string} "" if none fits
 */
function fitLabel(pen, { label, kind, ref, faint }, room) {
  if (room < 6) return "";
  const isModule = kind === "module" || kind === "recompute" || (kind === "node" && ref < 0);
  const [head] = label.split(", ");
  // A number keeps the name before it: "3" of "h.3" is no name of a module.
  const forms = isModule ? [/[^.]*(\.\d+)*$/.exec(label)?.[0] ?? label] : [label, head];
  if (kind === "step") forms.push(head.slice(5));
  return forms.find((form) => widthOf(pen, form, 10, faint ? 400 : 600) <= room) ?? "";
}

/**
 * @param {CanvasRenderingContext2D} ctx
 * @param {number} x
 * @param {number} y
 * @param {string} hue
 */
function paintTick(ctx, x, y, hue) {
  ctx.fillStyle = hue;
  tracePath(ctx, [x - 3, y + 2], [x + 3, y + 2], [x, y + 7]);
  ctx.fill();
  ctx.fillRect(x - 0.5, y + 6, 1, 8);
}

/**
 * @param {Pen} pen
 * @param {import("../../types.js").Scene} scene
 * @param {number} top
 * @param {(time: number) => number} x
 * @param {TimeRange} view
 */
function paintCurve({ ctx, palette }, scene, top, x, view) {
  const y = curveScale(scene, top);
  const older = scene.summary.older_nbytes; // held all the time
  traceSteps(ctx, scene.memory, x, (nbytes) => y(nbytes + older), view);
  setStroke(ctx, palette.saved, 1.5);
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
 * @returns {(nbytes: number) => number} the y of an amount
 */
function curveScale({ summary }, top) {
  const peak = summary.peak_nbytes + summary.older_nbytes || 1;
  return (nbytes) => top + CURVE_HEIGHT - (nbytes / peak) * (CURVE_HEIGHT - 8);
}

/**
 * @param {Pen} pen
 * @param {import("../../types.js").Scene} scene
 * @param {number} top
 * @param {number} plotLeft
 */
function paintScale(pen, scene, top, plotLeft) {
  const { palette } = pen;
  const peak = scene.summary.peak_nbytes + scene.summary.older_nbytes;
  const style = { size: 11.5, weight: 600, color: palette.saved, room: plotLeft - 16 };
  write(pen, "saved memory", 12, top + 8, style);
  const note = peak ? `peak ${formatBytes(peak)}` : "none";
  write(pen, note, 12, top + 22, { size: 9.5, color: palette.text2 });
  const y = curveScale(scene, top);
  for (const nbytes of ticks(0, peak, 3)) {
    if (y(nbytes) < top + 10 && nbytes < peak * 0.9) continue;
    if (y(nbytes) < top + 32 && plotLeft < 120) continue; // below the peak
    write(pen, formatBytes(nbytes), plotLeft - 6, y(nbytes), {
      size: 9.5,
      color: palette.text2,
      align: "right",
    });
  }
}

/**
 * @param {Pen} pen
 * @param {(time: number) => number} x
 * @param {TimeRange} range
 * @param {number} height
 * @param {Plot} plot
 */
function paintRange(pen, x, range, height, plot) {
  const { ctx, palette } = pen;
  const left = Math.max(plot.left, x(range[0]));
  const right = Math.min(plot.left + plot.width, x(range[1]));
  if (right <= left) return;
  fillBox(ctx, `${palette.backward}1c`, left, TOP, right - left, height - TOP - 12);
  setStroke(ctx, palette.backward, 1.4);
  ctx.strokeRect(left, TOP, right - left, height - TOP - 12);
  const label = formatDuration(range[1] - range[0]);
  const labelWidth = Math.max(right - left, widthOf(pen, label, 10, 600) + 12);
  const middle = (left + right) / 2;
  ctx.fillStyle = palette.backward;
  roundRect(ctx, middle - labelWidth / 2, 3, labelWidth, 17, 3);
  ctx.fill();
  write(pen, label, middle, 11.5, {
    size: 10,
    weight: 600,
    color: palette.surface,
    align: "center",
  });
}

/**
 * @param {Track[]} tracks
 * @param {number} py
 * @returns {number} index of the track at a height, -1 without one
 */
export function trackAt(tracks, py) {
  const tops = trackTops(tracks);
  return tracks.findIndex((_, i) => py >= tops[i] && py < tops[i + 1] - TRACK_GAP / 2);
}

/**
 * Return the shortest bar near a point.
 *
 * @param {Track[]} tracks
 * @param {import("../../shell/zoom_and_pan_time_axis.js").TimeWindow} window
 * @param {number} px
 * @param {number} py
 * @returns {Bar | null}
 */
export function barAt(tracks, window, px, py) {
  const at = trackAt(tracks, py);
  if (at < 0) return null;
  const row = Math.floor((py - trackTops(tracks)[at]) / ROW_HEIGHT);
  const [from, to] = [window.timeAt(px - 2), window.timeAt(px + 2)];
  const near = tracks[at].bars.filter(
    (bar) => bar.row === row && bar.start <= to && from <= bar.end,
  );
  near.sort((a, b) => a.end - a.start - (b.end - b.start));
  return near[0] ?? null;
}
