// @ts-check
/** One node: its box, its saved tensors on the right, its parameters on the left. */

import { paintGlyph } from "../../../canvas/icons.js";
import { TAG_GAP, TAG_SIZE, paintChips, paintPennants } from "./badges.js";
import { roundRect, widthOf, write } from "../../../canvas/text.js";
import { mix } from "../../../canvas/theme.js";

/** @typedef {import("../../../canvas/text.js").Pen} Pen */
/** @typedef {import("../../../types.js").SceneNode} SceneNode */
/** @typedef {import("../../../layout/coordinates.js").Box} Box */

const RADIUS = 6;

/**
 * The hue of a node: red where it failed, else backward's blue.
 *
 * @param {import("../../../canvas/theme.js").Palette} palette
 * @param {SceneNode} node
 * @returns {string}
 */
function hueOf(palette, node) {
  return node.error || node.state === "failed" ? palette.mutation : palette.backward;
}

/**
 * A box from afar: a bar without words.
 *
 * @param {Pen} pen
 * @param {Box} box
 * @param {SceneNode} node
 * @param {import("../../../scene/colors.js").Tint | null} tint
 */
export function paintNodeBar({ ctx, palette }, box, node, tint) {
  if (tint && !node.error) {
    ctx.fillStyle = mix(palette[tint.hue], palette.surface, 0.12 + tint.share);
    ctx.fillRect(box.x, box.y, box.width, box.height);
    return;
  }
  const hue = hueOf(palette, node);
  const strong = node.error || node.state === "failed" ? 1 : node.state === "ran" ? 0.55 : 0.3;
  ctx.fillStyle = mix(hue, palette.surface, strong);
  ctx.fillRect(box.x, box.y, box.width, box.height);
}

/**
 * @typedef {object} Dress what a node shows besides its names
 * @property {import("../../../types.js").Chip[]} chips
 * @property {import("../../../types.js").Pennant[]} pennants
 * @property {import("../../../scene/colors.js").Tint | null} tint
 * @property {import("../../../store.js").Half} half
 */

/**
 * @param {Pen} pen
 * @param {Box} box
 * @param {SceneNode} node
 * @param {Dress} dress
 */
export function paintNode(pen, box, node, dress) {
  if (node.compact) paintCompact(pen, box, node, dress);
  else paintTwoParts(pen, box, node, dress);
  paintChips(pen, box, dress.chips);
  paintPennants(pen, box, dress.pennants);
  const { palette } = pen;
  if (node.state === "failed" || node.error) {
    const right = node.compact ? box.x + box.width : box.x + box.width - 1;
    paintGlyph(pen.ctx, "failed", right, box.y, 16, palette.mutation, palette.surface);
  }
  if (node.hooks.length) {
    paintGlyph(pen.ctx, "hook", box.x + 1, box.y, 14, palette.surface, palette.text2);
  }
  paintBadges(pen, box, node);
}

/**
 * On the lower edge what happened to a node's tensors, on the upper one what it gave.
 *
 * @param {Pen} pen
 * @param {Box} box
 * @param {SceneNode} node
 */
function paintBadges(pen, box, node) {
  const { ctx, palette } = pen;
  const right = box.x + box.width;
  if (node.cloned) {
    paintBacking(pen, right - 2, box.y + box.height, 16);
    paintGlyph(ctx, "clone", right - 2, box.y + box.height, 12, palette.recompute);
  }
  if (node.not_finite) {
    paintBacking(pen, right - 18, box.y, 16);
    paintGlyph(ctx, "nan", right - 18, box.y - 0.5, 13, palette.mutation, palette.surface);
  }
  if (node.recomputes && !node.compact) paintRuns(pen, box, node.recomputes);
}

/**
 * How often a checkpoint ran a node's op again.
 *
 * @param {Pen} pen
 * @param {Box} box
 * @param {number} count
 */
function paintRuns(pen, box, count) {
  const { ctx, palette } = pen;
  const words = String(count);
  const [x, y] = [box.x + 11, box.y + box.height];
  const width = widthOf(pen, words, 9.5, 600) + 16;
  paintBacking(pen, x - 8 + width / 2, y, width);
  paintGlyph(ctx, "checkpoint", x - 1, y, 10, palette.recompute);
  write(pen, words, x + 5, y, { size: 9.5, weight: 600, color: palette.recompute });
}

/**
 * Keeps a glyph on an edge apart from the edge.
 *
 * @param {Pen} pen
 * @param {number} x its middle
 * @param {number} y
 * @param {number} width
 */
function paintBacking({ ctx, palette }, x, y, width) {
  ctx.fillStyle = palette.surface;
  roundRect(ctx, x - width / 2, y - 7, width, 14, 7);
  ctx.fill();
}

/**
 * The forward op on the left, the backward node on the right.
 *
 * @param {Pen} pen
 * @param {Box} box
 * @param {SceneNode} node
 * @param {Dress} dress
 */
function paintTwoParts(pen, box, node, { tint, half }) {
  const { ctx, palette } = pen;
  const { x, y, width, height } = box;
  const hue = hueOf(palette, node);
  const failed = hue === palette.mutation;
  const ran = node.state !== "not_run";
  const border = ran || failed ? hue : mix(hue, palette.surface, 0.45);
  if (failed) {
    ctx.fillStyle = mix(hue, palette.canvas, 0.2);
    roundRect(ctx, x - 3, y - 3, width + 6, height + 6, RADIUS + 3);
    ctx.fill();
  }
  const whole = half === "both" || !node.op_width;
  const split = whole ? x + node.op_width : half === "forward" ? x + width : x;
  ctx.fillStyle = palette.surface;
  roundRect(ctx, x, y, width, height, RADIUS);
  ctx.fill();
  const plain = failed ? palette.nodeTint * 1.3 : palette.nodeTint;
  const fill = tint && !failed ? mix(palette[tint.hue], palette.surface, tint.share) : null;
  if ((ran || fill) && split < x + width) {
    ctx.fillStyle = fill ?? mix(hue, palette.surface, plain);
    ctx.beginPath();
    ctx.roundRect(split, y, x + width - split, height, split > x ? [0, RADIUS, RADIUS, 0] : RADIUS);
    ctx.fill();
  }
  ctx.lineWidth = failed ? 1.8 : 1.1;
  ctx.strokeStyle = border;
  roundRect(ctx, x, y, width, height, RADIUS);
  ctx.stroke();
  if (split > x && split < x + width) {
    ctx.strokeStyle = mix(border, palette.surface, 0.6);
    ctx.lineWidth = 1;
    ctx.beginPath();
    ctx.moveTo(split, y);
    ctx.lineTo(split, y + height);
    ctx.stroke();
  }
  if (split > x) paintOp(pen, { ...box, width: split - x }, node, ran);
  if (split === x + width) return;
  write(pen, node.name, (split + x + width) / 2, y + height / 2, {
    size: 12,
    weight: ran ? 600 : 400,
    color: fill ? palette.text : hue,
    align: "center",
    room: x + width - split - 8,
  });
}

/**
 * The forward op's name, with a pencil where it wrote in place; red if that broke something.
 *
 * @param {Pen} pen
 * @param {Box} box
 * @param {SceneNode} node
 * @param {boolean} ran
 */
function paintOp(pen, box, node, ran) {
  const { palette } = pen;
  const y = box.y + box.height / 2;
  const wrote = node.writes || node.wrote;
  const pencil = wrote ? 15 : 0;
  const plain = ran ? palette.text : palette.text2;
  const color = node.writes ? palette.mutation : plain;
  const middle = box.x + box.width / 2 + pencil / 2;
  const room = box.width - 8 - pencil;
  const weight = node.writes ? 600 : 400;
  write(pen, node.op, middle, y, { size: 12, weight, color, align: "center", room });
  if (wrote) {
    const half = Math.min(room, widthOf(pen, node.op, 12, weight)) / 2;
    paintGlyph(pen.ctx, "pencil", middle - half - 9, y, 12, palette.mutation);
  }
}

/**
 * A residual addition: a small circle, its name beside it.
 *
 * @param {Pen} pen
 * @param {Box} box
 * @param {SceneNode} node
 * @param {Dress} dress
 */
function paintCompact(pen, box, node, { tint }) {
  const { ctx, palette } = pen;
  const hue = hueOf(palette, node);
  const x = box.x + box.width / 2;
  const y = box.y + box.height / 2;
  const ran = node.state !== "not_run";
  const plain = ran ? mix(hue, palette.surface, palette.nodeTint) : palette.surface;
  ctx.fillStyle = tint ? mix(palette[tint.hue], palette.surface, tint.share) : plain;
  ctx.strokeStyle = ran ? hue : mix(hue, palette.surface, 0.45);
  ctx.lineWidth = 1.2;
  ctx.beginPath();
  ctx.arc(x, y, box.height / 2 - 0.5, 0, 2 * Math.PI);
  ctx.fill();
  ctx.stroke();
  paintGlyph(ctx, "plus", x, y, 12, hue);
  write(pen, node.name, box.x + box.width + TAG_GAP, y, { size: TAG_SIZE, color: palette.text2 });
}
