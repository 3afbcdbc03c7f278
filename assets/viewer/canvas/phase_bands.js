// @ts-check
/** Bands of forward, backward and recomputation above a picture over time, and faintly behind it. */

import { fillBox } from "./shapes.js";
import { hueOfSpan, mix } from "./theme.js";
import { roundRect, widthOf, write } from "./text_fitted_to_width.js";

const PHASES = ["forward", "backward", "optimizer", "recompute"];

/**
 * @param {import("./text_fitted_to_width.js").Pen} pen
 * @param {(time: number) => number} x
 * @param {number} from x at which the picture begins
 * @param {import("../types.js").SceneSpan[]} spans
 * @param {number} head height of the part above it
 * @param {number} bottom of the picture
 */
export function paintPhases(pen, x, from, spans, head, bottom) {
  const { ctx, palette } = pen;
  const phases = spans
    .filter(({ kind, depth }) => !depth && PHASES.includes(kind))
    .sort((a, b) => a.start_ns - b.start_ns);
  phases.forEach(({ kind, start_ns, end_ns }, at) => {
    const next = phases[at + 1];
    // What is saved between a forward and its backward belongs to the forward.
    const isTurn = kind === "forward" && next?.kind === "backward" && next.start_ns > end_ns;
    const left = Math.max(from, x(start_ns));
    const width = Math.max(1.5, x(isTurn ? next.start_ns : end_ns) - (isTurn ? 1 : 0) - left);
    const hue = hueOfSpan(palette, kind);
    const isRecompute = kind === "recompute";
    ctx.fillStyle = mix(hue, palette.surface, isRecompute ? 0.35 : 0.2);
    if (isRecompute) {
      ctx.fillRect(left, head - 6, width, 3);
      return;
    }
    roundRect(ctx, left, 3, width, 15, 2);
    ctx.fill();
    if (widthOf(pen, kind, 10, 600) + 12 < width) {
      write(pen, kind, left + 6, 10.5, { size: 10, weight: 600, color: hue });
    }
    fillBox(ctx, `${hue}0d`, left, head, width, bottom - head);
  });
}
