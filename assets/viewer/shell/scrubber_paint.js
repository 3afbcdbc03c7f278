// @ts-check
/** Paints the scrubber: phases, saved memory, the replayed time, the failure. */

import { fillBox, setStroke, tracePath } from "../canvas/shapes.js";
import { hostTheme, hueOfSpan, mix } from "../canvas/theme.js";
import { traceSteps } from "../canvas/trace_step_curve.js";
import { kindHue } from "../scene/saved_kind_colors.js";
import { formatBytes } from "../scene/format_numbers_and_names.js";
import { peakIn } from "../scene/storage_holds.js";
import { paintGlyph } from "../canvas/draw_icon.js";
import { widthOf, write } from "../canvas/text_fitted_to_width.js";

/** @typedef {import("../canvas/text_fitted_to_width.js").Pen} Pen */

/** @typedef {{times: number[], layers: import("../scene/saved_memory_layers.js").Layer[]}} Layers */

/** Top of the curve of memory, below the row of its labels. */
const TOP = 43;
const LABELS = 36;

export const PHASES = ["forward", "optimizer", "backward", "recompute"];

/**
 * @param {Pen} pen
 * @param {(time: number) => number} x
 * @param {import("../types.js").Scene} scene
 * @param {number} now x of the handle; NaN without one
 */
export function paintPhases(pen, x, scene, now) {
  const { ctx, palette } = pen;
  const spans = scene.spans.filter((span) => PHASES.includes(span.kind));
  for (const { kind, start_ns, end_ns, depth, label } of spans) {
    const hue = hueOfSpan(palette, kind);
    const left = x(start_ns);
    const width = Math.max(1.5, x(end_ns) - left);
    const thin = kind === "recompute" || depth > 0;
    fillBox(
      ctx,
      mix(hue, palette.surface, thin ? 0.55 : 1.9 * palette.nodeTint),
      left,
      thin ? 24 : 16,
      width,
      thin ? 5 : 13,
    );
    const text = kind === "recompute" ? label : kind;
    const wide = widthOf(pen, text, 9.5, 600) + 10;
    // Not across the handle.
    const start = left < now && now < left + wide ? now : left;
    if (!thin && start + wide < left + width) {
      write(pen, text, start + 5, 20.5, { size: 9.5, weight: 600, color: palette.text });
    }
  }
}

/**
 * @param {Pen} pen
 * @param {(time: number) => number} x
 * @param {number} height
 * @param {import("../shared_view_state.js").Store} store
 * @param {number} failed x of the red line; NaN without a failure
 * @param {Layers | null} layers by kind, if they are known
 */
export function paintMemory(
  pen,
  x,
  height,
  { scene, sceneIndex, step, plan, time },
  failed,
  layers,
) {
  const { ctx, palette } = pen;
  const { memory, summary } = scene;
  const { end } = sceneIndex;
  if (!memory.length) return;
  const [top, bottom] = [TOP, height - 4];
  const older = summary.older_nbytes; // held all the time
  const peak = summary.peak_nbytes + older || 1;
  const y = (/** @type {number} */ nbytes) => bottom - ((nbytes + older) / peak) * (bottom - top);
  if (layers) paintLayers(ctx, layers, x, y, -older, (label) => kindHue(scene, label, hostTheme()));
  traceSteps(ctx, memory, x, y, [0, end]);
  setStroke(ctx, palette.saved, layers ? 1 : 1.3);
  ctx.stroke();
  if (!layers) {
    ctx.lineTo(x(end), bottom);
    ctx.lineTo(x(0), bottom);
    ctx.fillStyle = `${palette.saved}24`;
    ctx.fill();
  }
  const chosen = scene.steps[step];
  const highest = peakIn(scene, chosen ?? { start_ns: 0, end_ns: end });
  if (!highest.nbytes) return;
  const highestY = y(highest.nbytes);
  ctx.fillStyle = palette.saved;
  ctx.beginPath();
  ctx.arc(x(highest.time), highestY, 2.6, 0, 2 * Math.PI);
  ctx.fill();
  const budget = scene.budget_plans[plan];
  const label = `${formatBytes(highest.nbytes + older)} held at peak${budget ? `, budget ${formatBytes(budget.peak_nbytes)}` : ""}`;
  const room = widthOf(pen, label, 9.5, 600) + 10;
  const at = x(highest.time);
  // On the right of the point, on its left, or at the lines of the failure and of the replayed time,
  // but not across these.
  const now = time === null ? NaN : x(time);
  const starts = [at + 4, at - room, failed - room, now + 4];
  const start = starts.find(
    (from) =>
      from > x(0) &&
      from + room <= x(end) &&
      ![failed, now].some((line) => from < line + 3 && from + room > line + 3),
  );
  const shown = start ?? starts[Number(at + room > x(end) && at > room)];
  const style = { size: 9.5, weight: 600, color: palette.saved, halo: palette.surface };
  write(pen, label, shown + 3, LABELS, style);
}

/**
 * @param {CanvasRenderingContext2D} ctx
 * @param {Layers} stacked
 * @param {(time: number) => number} x
 * @param {(nbytes: number) => number} y
 * @param {number} lowest bytes below the lowest layer
 * @param {(label: string) => string | undefined} hueOf
 */
export function paintLayers(ctx, { times, layers }, x, y, lowest, hueOf) {
  const below = times.map(() => lowest);
  for (const { label, values } of layers) {
    ctx.beginPath();
    times.forEach((time, at) => {
      if (at) ctx.lineTo(x(time), y(below[at - 1] + values[at - 1]));
      ctx.lineTo(x(time), y(below[at] + values[at]));
    });
    for (let at = times.length - 1; at >= 0; at--) {
      ctx.lineTo(x(times[at]), y(below[at]));
      if (at) ctx.lineTo(x(times[at]), y(below[at - 1]));
    }
    ctx.closePath();
    ctx.globalAlpha = 0.75;
    ctx.fillStyle = hueOf(label) ?? "#8a9199";
    ctx.fill();
    ctx.globalAlpha = 1;
    values.forEach((value, at) => (below[at] += value));
  }
}

/**
 * @param {Pen} pen
 * @param {number} x
 * @param {number} height
 */
export function paintFailure({ ctx, palette }, x, height) {
  fillBox(ctx, palette.mutation, x - 0.7, 12, 1.4, height - 14);
  paintGlyph(ctx, "failed", x, 8, 13, palette.mutation, palette.surface);
}

/**
 * Paint the line of the budget.
 *
 * @param {Pen} pen
 * @param {[left: number, right: number]} step of the budget
 * @param {number} height
 * @param {import("../types.js").Scene} scene
 * @param {number} nbytes
 */
export function paintBudget(pen, [left, right], height, { summary }, nbytes) {
  const { ctx, palette } = pen;
  const [top, bottom] = [TOP, height - 4];
  const y = bottom - (nbytes / (summary.peak_nbytes || 1)) * (bottom - top);
  setStroke(ctx, palette.recompute, 1.4);
  ctx.setLineDash([5, 3]);
  tracePath(ctx, [left, y], [right, y]);
  ctx.stroke();
  ctx.setLineDash([]);
}

/**
 * Fade what is outside the step on display.
 *
 * @param {Pen} pen
 * @param {[left: number, right: number]} step
 * @param {[left: number, right: number]} recording
 * @param {number} height
 */
export function paintOutside({ ctx, palette }, [left, right], [first, last], height) {
  fillBox(ctx, `${palette.surface}b8`, first, 15, left - first, height - 15);
  ctx.fillRect(right, 15, last - right, height - 15);
  fillBox(ctx, palette.text2, left, 13, right - left, 1.5);
}

/**
 * Paint the handle at the replayed time, and fade what comes after it.
 *
 * @param {Pen} pen
 * @param {number} x
 * @param {number} right x of the end of the recording
 * @param {number} height
 */
export function paintTime({ ctx, palette }, x, right, height) {
  fillBox(ctx, `${palette.surface}a0`, x, 15, right - x, height - 15);
  fillBox(ctx, palette.text, x - 0.8, 8, 1.6, height - 8);
  tracePath(ctx, [x - 5, 3], [x + 5, 3], [x + 5, 8], [x, 13], [x - 5, 8]);
  ctx.fill();
}
