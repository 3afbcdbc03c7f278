// @ts-check
/** Paints a node: its box with badges on both sides. */

import { fillBox, setStroke, tracePath } from "../../../canvas/shapes.js";
import { paintGlyph } from "../../../canvas/draw_icon.js";
import {
  BADGE_GAP,
  BADGE_TEXT_SIZE,
  paintParameterBadges,
  paintSavedTensorBadges,
} from "./badges.js";
import {
  MAX_CONDENSED,
  paintText,
  roundRect,
  widthOf,
  write,
} from "../../../canvas/text_fitted_to_width.js";
import { mix } from "../../../canvas/theme.js";
import { paintByteBar } from "./group.js";

/** @typedef {import("../../../canvas/text_fitted_to_width.js").Pen} Pen */
/** @typedef {import("../../../types.js").SceneNode} SceneNode */
/** @typedef {import("../../../layout/coordinates.js").Box} Box */

const RADIUS = 6;

/**
 * Return the color of a node: red if it failed, else the color of backward.
 *
 * @param {import("../../../canvas/theme.js").Palette} palette
 * @param {SceneNode} node
 * @returns {string}
 */
function hueOf(palette, node) {
  return node.error || node.state === "failed" ? palette.mutation : palette.backward;
}

/**
 * Paint a node as a bar without text.
 *
 * @param {Pen} pen
 * @param {Box} box
 * @param {SceneNode} node
 * @param {import("../../../scene/graph_colorings.js").Tint | null} tint
 */
export function paintNodeBar({ ctx, palette }, box, node, tint) {
  if (tint && !node.error) {
    fillBox(
      ctx,
      mix(palette[tint.hue], palette.surface, 0.12 + tint.share),
      box.x,
      box.y,
      box.width,
      box.height,
    );
    return;
  }
  const hue = hueOf(palette, node);
  const strong = node.error || node.state === "failed" ? 1 : node.state === "ran" ? 0.55 : 0.3;
  fillBox(ctx, mix(hue, palette.surface, strong), box.x, box.y, box.width, box.height);
}

/**
 * @typedef {object} NodeLook
 * @property {import("../../../types.js").SavedTensorBadge[]} saved
 * @property {import("../../../types.js").ParameterBadge[]} parameters
 * @property {import("../../../scene/graph_colorings.js").Tint | null} tint
 * @property {number} all bytes that all nodes save
 */

/**
 * @param {Pen} pen
 * @param {Box} box
 * @param {SceneNode} node
 * @param {NodeLook} look
 */
export function paintNode(pen, box, node, look) {
  if (node.compact) paintCompact(pen, box, node, look);
  else paintTwoParts(pen, box, node, look);
  const { palette } = pen;
  if (node.state === "failed" || node.error) {
    const right = node.compact ? box.x + box.width : box.x + box.width - 1;
    paintGlyph(pen.ctx, "failed", right, box.y, 16, palette.mutation, palette.surface);
    const style = { size: BADGE_TEXT_SIZE, weight: 600, color: palette.mutation };
    const role = roleOf(node);
    if (role) paintText(pen, role, right + 11, box.y - 4, style);
  }
  paintSavedTensorBadges(pen, box, look.saved, node.right_width);
  paintParameterBadges(pen, box, look.parameters);
  if (node.hooks.length) {
    paintGlyph(pen.ctx, "hook", box.x + 1, box.y, 14, palette.surface, palette.text2);
  }
  paintNodeBadges(pen, box, node);
}

/**
 * Return the role of a red node.
 *
 * @param {SceneNode} node
 * @returns {string}
 */
export function roleOf({ state }) {
  if (state === "failed") return "stopped here";
  return state === "not_run" ? "never reached" : "";
}

/**
 * Paint the badges on the edges of a node: clones below, NaN above.
 *
 * @param {Pen} pen
 * @param {Box} box
 * @param {SceneNode} node
 */
function paintNodeBadges(pen, box, node) {
  const { ctx, palette } = pen;
  const right = box.x + box.width;
  if (node.cloned) {
    paintBackground(pen, right - 2, box.y + box.height, 16);
    paintGlyph(ctx, "clone", right - 2, box.y + box.height, 12, palette.recompute);
  }
  if (node.not_finite) {
    paintBackground(pen, right - 18, box.y, 16);
    paintGlyph(ctx, "nan", right - 18, box.y - 0.5, 13, palette.mutation, palette.surface);
  }
}

/**
 * Paint the background of a glyph on an edge.
 *
 * @param {Pen} pen
 * @param {number} x center
 * @param {number} y
 * @param {number} width
 */
function paintBackground({ ctx, palette }, x, y, width) {
  ctx.fillStyle = palette.surface;
  roundRect(ctx, x - width / 2, y - 7, width, 14, 7);
  ctx.fill();
}

/**
 * Paint a box with the forward op on the left and the backward node on the right.
 *
 * @param {Pen} pen
 * @param {Box} box
 * @param {SceneNode} node
 * @param {NodeLook} look
 */
function paintTwoParts(pen, box, node, { tint, all }) {
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
  const split = x + node.op_width;
  ctx.fillStyle = palette.surface;
  roundRect(ctx, x, y, width, height, RADIUS);
  ctx.fill();
  const plain = failed ? palette.nodeTint * 1.3 : palette.nodeTint;
  const fill = tint && !failed ? mix(palette[tint.hue], palette.surface, tint.share) : null;
  if (ran || fill) {
    ctx.fillStyle = fill ?? mix(hue, palette.surface, plain);
    ctx.beginPath();
    ctx.roundRect(split, y, x + width - split, height, split > x ? [0, RADIUS, RADIUS, 0] : RADIUS);
    ctx.fill();
  }
  setStroke(ctx, border, failed ? 1.8 : 1.1);
  roundRect(ctx, x, y, width, height, RADIUS);
  ctx.stroke();
  if (split > x) {
    setStroke(ctx, mix(border, palette.surface, 0.6), 1);
    tracePath(ctx, [split, y], [split, y + height]);
    ctx.stroke();
  }
  paintByteBar(pen, box, height, node.saved_nbytes, 0, all);
  if (split > x) paintOp(pen, { ...box, width: split - x }, node, ran);
  const style = { size: 12, color: fill ? palette.text : hue };
  const weight = ran ? 600 : 400;
  const [, stem, rest] = /** @type {RegExpExecArray} */ (/^(.+?)(Backward\d*)?$/.exec(node.name));
  const long = widthOf(pen, stem, 12, weight);
  const [middle, room] = [y + height / 2, x + width - split - 8];
  const at = (split + x + width - long - (rest ? widthOf(pen, rest, 12) : 0)) / 2;
  if (at < split + 4) {
    const center = (split + x + width) / 2;
    // Thin letters are narrower, and easier to read than a shorter name.
    const isLong = widthOf(pen, node.name, 12, weight) > room * MAX_CONDENSED;
    const thin = { ...style, weight: isLong ? 400 : weight };
    write(pen, node.name, center, middle, { ...thin, align: "center", room });
    return;
  }
  write(pen, stem, at, middle, { ...style, weight });
  const dim = mix(style.color, palette.surface, 0.8);
  if (rest) write(pen, rest, at + long, middle, { ...style, color: dim });
}

/**
 * Paint the name of the forward op, with a pencil if it wrote in place; red for a culprit.
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
    paintGlyph(
      pen.ctx,
      "pencil",
      middle - half - 9,
      y,
      12,
      node.writes ? palette.mutation : palette.text2,
    );
  }
}

/**
 * Paint a residual addition: a small circle with its name on the right.
 *
 * @param {Pen} pen
 * @param {Box} box
 * @param {SceneNode} node
 * @param {NodeLook} look
 */
function paintCompact(pen, box, node, { tint }) {
  const { ctx, palette } = pen;
  const hue = hueOf(palette, node);
  const x = box.x + box.width / 2;
  const y = box.y + box.height / 2;
  const ran = node.state !== "not_run";
  const plain = ran ? mix(hue, palette.surface, palette.nodeTint) : palette.surface;
  ctx.fillStyle = tint ? mix(palette[tint.hue], palette.surface, tint.share) : plain;
  setStroke(ctx, ran ? hue : mix(hue, palette.surface, 0.45), 1.2);
  ctx.beginPath();
  ctx.arc(x, y, box.height / 2 - 0.5, 0, 2 * Math.PI);
  ctx.fill();
  ctx.stroke();
  paintGlyph(ctx, "plus", x, y, 12, hue);
  write(pen, node.name, box.x + box.width + BADGE_GAP, y, {
    size: BADGE_TEXT_SIZE,
    color: palette.text2,
  });
}
