// @ts-check
/** Paints the edges of the graph. */

import { setStroke, tracePath } from "../../../canvas/shapes.js";
import { roundRect, widthOf, write } from "../../../canvas/text_fitted_to_width.js";
import { mix } from "../../../canvas/theme.js";

/** @typedef {import("../../../canvas/text_fitted_to_width.js").Pen} Pen */
/** @typedef {import("../../../layout/coordinates.js").Line} Line */

/**
 * @typedef {object} LineStyle
 * @property {string} color
 * @property {number} width
 */

/**
 * Return the style of a line: on a path, at the selected node, or other.
 *
 * @param {Pen} pen
 * @param {boolean} onPath
 * @param {boolean} selected whether it ends at the selected or hovered node
 * @returns {LineStyle}
 */
export function lineStyle({ palette }, onPath, selected) {
  if (onPath) return { color: palette.path, width: 2.4 };
  if (selected) return { color: palette.backward, width: 1.8 };
  return { color: mix(palette.edge, palette.canvas, 0.75), width: 1.2 };
}

/**
 * @param {Pen} pen
 * @param {Line} line
 * @param {LineStyle} style
 */
export function paintLine({ ctx, scale }, line, style) {
  const { points } = line;
  const last = points.length - 1;
  // Lines stay visible at small scales.
  setStroke(ctx, style.color, Math.max(style.width, 0.6 / scale));
  ctx.lineJoin = "round";
  if (line.stub) ctx.setLineDash([2, 2]);
  ctx.beginPath();
  ctx.moveTo(points[0][0], points[0][1]);
  for (let i = 1; i < last; i++) {
    const [x, y] = points[i];
    const [nextX, nextY] = points[i + 1];
    const [beforeX, beforeY] = points[i - 1];
    const before = Math.abs(x - beforeX) + Math.abs(y - beforeY);
    const after = Math.abs(nextX - x) + Math.abs(nextY - y);
    ctx.arcTo(x, y, nextX, nextY, Math.min(5, before / 2, after / 2));
  }
  ctx.lineTo(points[last][0], points[last][1]);
  ctx.stroke();
  ctx.setLineDash([]);
  if (line.arrow && scale > 0.3) paintArrow(ctx, points[last - 1], points[last], style);
}

/**
 * Paint a gradient on its way along a line.
 *
 * @param {Pen} pen
 * @param {Line} line
 * @param {number} way from 0 to 1
 * @param {string} color
 */
export function paintPulse({ ctx, scale }, { points }, way, color) {
  const lengths = points
    .slice(1)
    .map(([x, y], at) => Math.hypot(x - points[at][0], y - points[at][1]));
  let rest = way * lengths.reduce((sum, length) => sum + length, 0);
  let at = 0;
  while (at < lengths.length - 1 && rest > lengths[at]) rest -= lengths[at++];
  const share = lengths[at] ? Math.min(1, rest / lengths[at]) : 0;
  const [[x, y], [nextX, nextY]] = [points[at], points[at + 1]];
  ctx.fillStyle = color;
  ctx.beginPath();
  ctx.arc(x + (nextX - x) * share, y + (nextY - y) * share, Math.max(4.5, 2.5 / scale), 0, 7);
  ctx.fill();
}

/**
 * @param {CanvasRenderingContext2D} ctx
 * @param {import("../../../layout/coordinates.js").Point} from
 * @param {import("../../../layout/coordinates.js").Point} to
 * @param {LineStyle} style
 */
function paintArrow(ctx, from, to, style) {
  const down = to[1] >= from[1] ? -1 : 1;
  const half = 2.4 + style.width * 0.7;
  const length = half * 1.8;
  ctx.fillStyle = style.color;
  tracePath(
    ctx,
    [to[0], to[1]],
    [to[0] - half, to[1] + down * length],
    [to[0] + half, to[1] + down * length],
  );
  ctx.fill();
}

/**
 * Paint the numbers of view ops that are folded into lines. Where two would overlap, the later one
 * is short, or left out where there is no room for that.
 *
 * @param {Pen} pen
 * @param {{line: Line, views: number, color: string, background: string}[]} labels
 * @returns {{left: number, right: number, y: number}[]} where they are
 */
export function paintViews(pen, labels) {
  /** @type {{left: number, right: number, y: number}[]} */
  const taken = [];
  if (pen.scale < 0.6) return taken;
  for (const { line, views, color, background } of labels) {
    if (!line.label) continue;
    const [x, middle] = line.label;
    const y = middle - 2; // small text is drawn larger
    for (const text of [`${views} view ops`, String(views)]) {
      const width = widthOf(pen, text, 9.5) + 8;
      const [left, right] = [x - width / 2, x + width / 2];
      const isTaken = taken.some(
        (other) => Math.abs(other.y - y) < 12 && other.left < right && other.right > left,
      );
      if (isTaken) continue;
      taken.push({ left, right, y });
      pen.ctx.fillStyle = background;
      roundRect(pen.ctx, left, y - 6.5, width, 13, 6.5);
      pen.ctx.fill();
      write(pen, text, x, y, { size: 9.5, color, align: "center" });
      break;
    }
  }
  return taken;
}
