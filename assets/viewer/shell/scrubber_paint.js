// @ts-check
/** The strip below all views: what ran, the bytes that were kept, where we are. */

import { hueOfSpan, traceSteps } from "../canvas/charts.js";
import { formatBytes } from "../scene/format.js";
import { paintGlyph } from "../canvas/icons.js";
import { widthOf, write } from "../canvas/text.js";
import { mix } from "../canvas/theme.js";

/** @typedef {import("../canvas/text.js").Pen} Pen */

export const BANDS = ["forward", "optimizer", "backward", "recompute"];

/**
 * @param {Pen} pen
 * @param {(time: number) => number} x
 * @param {import("../types.js").Scene} scene
 */
export function paintBands(pen, x, scene) {
  const { ctx, palette } = pen;
  const spans = scene.spans.filter((span) => BANDS.includes(span.kind));
  for (const { kind, start_ns, end_ns, depth, label } of spans) {
    const hue = hueOfSpan(palette, kind);
    const left = x(start_ns);
    const width = Math.max(1.5, x(end_ns) - left);
    const inner = kind === "recompute" || depth > 0;
    ctx.fillStyle = mix(hue, palette.surface, inner ? 0.55 : 0.22);
    ctx.fillRect(left, inner ? 24 : 16, width, inner ? 5 : 13);
    const words = kind === "recompute" ? label : kind;
    if (!inner && widthOf(pen, words, 9.5, 600) + 10 < width) {
      write(pen, words, left + 5, 20.5, { size: 9.5, weight: 600, color: hue });
    }
  }
}

/**
 * @param {Pen} pen
 * @param {(time: number) => number} x
 * @param {number} height
 * @param {import("../store.js").Store} store
 */
export function paintCurve(pen, x, height, { scene, atlas }) {
  const { ctx, palette } = pen;
  const { memory, summary } = scene;
  const { end } = atlas;
  if (!memory.length) return;
  const [top, bottom] = [33, height - 4];
  const most = summary.peak_nbytes || 1;
  const y = (/** @type {number} */ nbytes) => bottom - (nbytes / most) * (bottom - top);
  traceSteps(ctx, memory, x, y, [0, end]);
  ctx.strokeStyle = palette.saved;
  ctx.lineWidth = 1.3;
  ctx.stroke();
  ctx.lineTo(x(end), bottom);
  ctx.lineTo(x(0), bottom);
  ctx.fillStyle = `${palette.saved}24`;
  ctx.fill();
  const peak = memory.find((point) => point.nbytes === most);
  if (!peak) return;
  ctx.fillStyle = palette.saved;
  ctx.beginPath();
  ctx.arc(x(peak.time_ns), y(most), 2.6, 0, 2 * Math.PI);
  ctx.fill();
  const words = `peak ${formatBytes(most)} saved`;
  const room = widthOf(pen, words, 9.5, 600) + 10;
  const left = x(peak.time_ns) - room > 0 && x(peak.time_ns) + room > x(end);
  const start = x(peak.time_ns) + (left ? -room : 4);
  ctx.fillStyle = `${palette.surface}d0`;
  ctx.fillRect(start, y(most) - 1, room - 4, 13);
  write(pen, words, x(peak.time_ns) + (left ? -7 : 7), y(most) + 6, {
    size: 9.5,
    weight: 600,
    color: palette.saved,
    align: left ? "right" : "left",
  });
}

/**
 * @param {Pen} pen
 * @param {(time: number) => number} x
 * @param {number} height
 * @param {import("../store.js").Store} store
 * @param {number | null} failedAt
 */
export function paintNow({ ctx, palette }, x, height, { time, atlas }, failedAt) {
  if (failedAt !== null) {
    const at = x(failedAt);
    ctx.fillStyle = palette.mutation;
    ctx.fillRect(at - 0.7, 12, 1.4, height - 14);
    paintGlyph(ctx, "failed", at, 8, 13, palette.mutation, palette.surface);
  }
  if (time === null) return;
  const at = x(time);
  ctx.fillStyle = `${palette.surface}a0`;
  ctx.fillRect(at, 15, x(atlas.end) - at, height - 15);
  ctx.fillStyle = palette.text;
  ctx.fillRect(at - 0.8, 8, 1.6, height - 8);
  ctx.beginPath();
  ctx.moveTo(at - 5, 3);
  ctx.lineTo(at + 5, 3);
  ctx.lineTo(at + 5, 8);
  ctx.lineTo(at, 13);
  ctx.lineTo(at - 5, 8);
  ctx.fill();
}
