// @ts-check
/** The bytes that saved tensors of two executions hold, on one scale, with one turn. */

import { fillBox, setStroke } from "../../canvas/shapes.js";
import { startDrawing } from "../../canvas/size_cache_and_clip_canvas.js";
import { mix } from "../../canvas/theme.js";
import { ticks } from "../../canvas/paint_time_axis.js";
import { widthOf, write } from "../../canvas/text_fitted_to_width.js";
import { heldCurve } from "../../scene/curve_of_bytes_held.js";
import { formatBytes } from "../../scene/format_numbers_and_names.js";

/** @typedef {import("./folds_side_by_side.js").Side} Side */
/** @typedef {[share: number, nbytes: number]} Point */

const TOP = 20;
const BOTTOM = 20;
const COLORS = /** @type {const} */ (["text2", "saved"]);

/**
 * Return the bytes that a side holds from its first save to the end of its backward. Events are equally far
 * apart; the turn is in the middle, so that forward and backward of both sides lie on each other.
 *
 * @param {Side} side
 * @returns {Point[]}
 */
export function heldPoints({ scene, fold: at }) {
  const fold = scene.folds[at];
  if (!fold) return [];
  const { turn_ns, end_ns } = fold;
  // A storage that several steps save was first saved in an earlier one.
  const start_ns = Math.max(fold.start_ns, scene.steps[fold.step]?.start_ns ?? 0);
  const turn = turn_ns < 0 ? end_ns : turn_ns;
  const { times, held } = heldCurve(scene.counted_storages);
  const inside = times.flatMap((time, i) => (start_ns <= time && time <= end_ns ? [i] : []));
  const before = inside.filter((i) => times[i] <= turn).length;
  const after = inside.length - before;
  return inside.map((i, n) => [
    n < before ? (0.5 * n) / Math.max(1, before) : 0.5 + (0.5 * (n - before)) / Math.max(1, after),
    held[i],
  ]);
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {import("../../canvas/theme.js").Palette} palette
 * @param {Point[][]} curves one that is dashed, one that is solid
 * @param {number} [turn] share of the width at which backward begins, -1 for no words
 * @param {(pen: import("../../canvas/text_fitted_to_width.js").Pen, x: (share: number) => number, y: number) => void} [paintAxis]
 *   paints the labels below the curves
 */
export function paintHeld(canvas, palette, curves, turn = 0.5, paintAxis) {
  const drawing = startDrawing(canvas, palette);
  if (!drawing) return;
  const { pen, width, height } = drawing;
  const { ctx } = pen;
  const peaks = curves.map((points) => Math.max(0, ...points.map(([, nbytes]) => nbytes)));
  const most = Math.max(1, ...peaks);
  const bottom = height - BOTTOM;
  const levels = ticks(0, most, 5);
  const left = 8 + Math.max(...levels.map((nbytes) => widthOf(pen, formatBytes(nbytes), 9.5)));
  const x = (/** @type {number} */ share) => left + share * (width - left - 1);
  const y = (/** @type {number} */ nbytes) => bottom - (nbytes / most) * (bottom - TOP);
  const scale = { size: 9.5, color: palette.text2 };
  for (const nbytes of levels) {
    fillBox(ctx, palette.line, left, y(nbytes), width - left, 1);
    write(pen, formatBytes(nbytes), left - 5, y(nbytes), { ...scale, align: "right" });
  }
  if (paintAxis) paintAxis(pen, x, height - 9);
  ctx.fillStyle = palette.line;
  if (turn >= 0) {
    ctx.fillRect(x(turn), TOP - 6, 1, bottom - TOP + 6);
    const at = paintAxis ? TOP - 10 : height - 9;
    write(pen, "forward", x(0) + 2, at, scale);
    write(pen, "backward", x(turn) + 5, at, { ...scale, color: palette.backward });
  }
  curves.forEach((points, place) => {
    const color = palette[COLORS[place]];
    setStroke(ctx, color, 1.8);
    ctx.setLineDash(place ? [] : [4, 3]);
    ctx.beginPath();
    ctx.moveTo(x(0), bottom);
    let held = 0;
    for (const [share, nbytes] of points) {
      ctx.lineTo(x(share), y(held));
      ctx.lineTo(x(share), y((held = nbytes)));
    }
    ctx.lineTo(x(1), y(held));
    ctx.stroke();
    if (place) {
      ctx.lineTo(x(1), bottom);
      ctx.fillStyle = mix(color, palette.surface, 0.14);
      ctx.globalCompositeOperation = "destination-over";
      ctx.fill();
      ctx.globalCompositeOperation = "source-over";
    }
    ctx.setLineDash([]);
    const [at] = points.find(([, nbytes]) => nbytes === peaks[place]) ?? [0];
    const isLate = at > 0.6 || Math.abs(at - turn) < 0.1;
    if (!points.length || (place && formatBytes(peaks[0]) === formatBytes(peaks[1]))) return;
    const text = formatBytes(peaks[place]);
    const left = x(at) + (isLate ? -5 : 5);
    const room = widthOf(pen, text, 10.5, 600);
    // The other curve may run below it.
    fillBox(
      ctx,
      `${palette.surface}e0`,
      left - (isLate ? room : 0),
      y(peaks[place]) - 15,
      room,
      13,
    );
    write(pen, text, left, y(peaks[place]) - 8, {
      size: 10.5,
      weight: 600,
      color,
      align: isLate ? "right" : "left",
    });
  });
}
