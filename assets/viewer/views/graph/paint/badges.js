// @ts-check
/** Paints the badges next to a node: saved tensors on the right, parameters on the left. */

import { setStroke } from "../../../canvas/shapes.js";
import { savedTensorLabel } from "../../../scene/format_numbers_and_names.js";
import { paintGlyph } from "../../../canvas/draw_icon.js";
import { MAX_CONDENSED, roundRect, widthOf, write } from "../../../canvas/text_fitted_to_width.js";
import { mix } from "../../../canvas/theme.js";

/** @typedef {import("../../../canvas/text_fitted_to_width.js").Pen} Pen */
/** @typedef {import("../../../layout/coordinates.js").Box} Box */

/** Distance between a node and its first badge. */
export const BADGE_GAP = 9;
export const BADGE_TEXT_SIZE = 11;
export const BADGE_DISTANCE = 5;
export const BADGE_HEIGHT = 19;

/** @type {Record<string, [import("../../../canvas/icon_paths.js").GlyphName, "leaf" | "mutation"]>} */
const GRADIENTS = {
  ok: ["check", "leaf"],
  none: ["none", "leaf"],
  zero: ["zero", "mutation"],
  nan: ["nan", "mutation"],
};

/** @typedef {import("../../../types.js").SavedTensorBadge} SavedTensorBadge */

/**
 * @param {Box} box of a node
 * @param {SavedTensorBadge[]} badges of the node
 * @param {SavedTensorBadge} [badge] by default the place after the last one
 * @returns {number} x of a badge
 */
export function badgeX(box, badges, badge) {
  let x = box.x + box.width + BADGE_GAP;
  for (const each of badges) {
    if (each === badge) break;
    if (each.width) x += each.width + BADGE_DISTANCE;
  }
  return x;
}

/**
 * @param {Pen} pen
 * @param {Box} box
 * @param {SavedTensorBadge[]} badges
 * @param {number} room for the badges, from the box on
 */
export function paintSavedTensorBadges(pen, box, badges, room) {
  const x = badgeX(box, badges);
  const y = box.y + (box.height - BADGE_HEIGHT) / 2;
  for (const badge of badges) {
    if (badge.width) paintSavedTensorBadge(pen, badge, badgeX(box, badges, badge), y);
  }
  const rest = badges.filter((badge) => !badge.width);
  const hidden = rest.length;
  // The arrow of the write ends at a broken badge.
  if (hidden && !badges.some((badge) => badge.width && badge.state === "broken")) {
    // A badge that stands for the others.
    const { ctx, palette } = pen;
    const style = /** @type {const} */ ({ size: BADGE_TEXT_SIZE, color: palette.text2 });
    const widthFor = (/** @type {string} */ form) => widthOf(pen, form, BADGE_TEXT_SIZE) + 9;
    const long = `+${hidden} saved`;
    const text = x + widthFor(long) <= box.x + box.width + room ? long : `+${hidden}`;
    const width = widthFor(text);
    roundRect(ctx, x, y, width, BADGE_HEIGHT, 3);
    const hue = rest.every(({ state }) => state === rest[0].state)
      ? hueOf(pen, rest[0])
      : palette.text2;
    ctx.fillStyle = mix(hue, palette.surface, palette.badgeTint);
    ctx.fill();
    setStroke(ctx, mix(hue, palette.surface, 0.55), 1);
    ctx.stroke();
    write(pen, text, x + 5, y + BADGE_HEIGHT / 2, style);
  }
}

/**
 * @param {Pen} pen
 * @param {import("../../../types.js").SavedTensorBadge} badge
 * @returns {string} the color of its state
 */
function hueOf({ palette }, { state }) {
  if (state === "broken" || state === "stale") return palette.mutation;
  if (state === "recomputed") return palette.recompute;
  return state === "freed" ? palette.text2 : palette.saved;
}

/**
 * @param {Pen} pen
 * @param {import("../../../types.js").SavedTensorBadge} badge
 * @param {number} x
 * @param {number} y
 */
function paintSavedTensorBadge(pen, badge, x, y) {
  const { ctx, palette } = pen;
  const isWritten = badge.state === "broken" || badge.state === "stale";
  const hue = hueOf(pen, badge);
  ctx.fillStyle = mix(hue, palette.surface, palette.badgeTint);
  roundRect(ctx, x, y, badge.width, BADGE_HEIGHT, 3);
  ctx.fill();
  setStroke(ctx, mix(hue, palette.surface, 0.55), 1);
  ctx.stroke();
  ctx.fillStyle = hue;
  ctx.beginPath();
  ctx.roundRect(x - 0.5, y - 0.5, 4, BADGE_HEIGHT + 1, [3, 0, 0, 3]);
  ctx.fill();
  const label = savedTensorLabel(badge);
  const middle = y + BADGE_HEIGHT / 2;
  const { slot, version, bytes } = label;
  /** @type {[string, string, number?][][]} the first one that fits is written */
  const forms = [
    [
      [slot && version ? `${slot} ` : slot, palette.text],
      [version, hue, 600],
      [slot || version ? ` · ${bytes}` : bytes, palette.text2],
    ],
    [[`${slot} `, palette.text], isWritten ? [version, hue, 600] : [bytes, palette.text2]],
    [isWritten ? [version, hue, 600] : [bytes, palette.text2]],
  ];
  const room = badge.width - 12;
  const size = BADGE_TEXT_SIZE;
  const wide = (/** @type {[string, string, number?][]} */ parts) =>
    parts.reduce((sum, [text, , weight]) => sum + widthOf(pen, text, size, weight), 0);
  const form = forms.find((parts) => wide(parts) <= room * MAX_CONDENSED) ?? forms[2];
  const squeeze = Math.min(1, room / wide(form));
  let at = x + 9;
  for (const [text, color, weight] of form) {
    const width = widthOf(pen, text, size, weight) * squeeze;
    if (text) write(pen, text, at, middle, { size, color, weight, room: width + 0.1 });
    at += width;
  }
}

/**
 * @param {Pen} pen
 * @param {Box} box
 * @param {import("../../../types.js").ParameterBadge[]} badges
 */
export function paintParameterBadges(pen, box, badges) {
  let right = box.x - BADGE_GAP;
  const y = box.y + (box.height - BADGE_HEIGHT) / 2;
  for (const badge of badges) {
    if (!badge.width) continue;
    paintParameterBadge(pen, badge, right - badge.width, y);
    right -= badge.width + BADGE_DISTANCE;
  }
}

/**
 * @param {Pen} pen
 * @param {import("../../../types.js").ParameterBadge} badge
 * @param {number} x
 * @param {number} y
 */
function paintParameterBadge(pen, badge, x, y) {
  const { ctx, palette } = pen;
  const right = x + badge.width;
  const middle = y + BADGE_HEIGHT / 2;
  ctx.beginPath();
  ctx.moveTo(x + 2, y);
  ctx.lineTo(right - 7, y);
  ctx.lineTo(right, middle);
  ctx.lineTo(right - 7, y + BADGE_HEIGHT);
  ctx.lineTo(x + 2, y + BADGE_HEIGHT);
  ctx.quadraticCurveTo(x, y + BADGE_HEIGHT, x, y + BADGE_HEIGHT - 2);
  ctx.lineTo(x, y + 2);
  ctx.quadraticCurveTo(x, y, x + 2, y);
  ctx.fillStyle = mix(palette.leaf, palette.surface, palette.badgeTint);
  ctx.fill();
  setStroke(ctx, mix(palette.leaf, palette.surface, 0.65), 1);
  ctx.stroke();
  const glyph = badge.grad === "unknown" ? 0 : 14;
  const room = right - 9 - glyph;
  const isLong = widthOf(pen, badge.label, BADGE_TEXT_SIZE, 600) > room - x - 7;
  const label = isLong ? badge.label.replace(/^[^,]*\./, "") : badge.label;
  write(pen, label, x + 7, middle, {
    size: BADGE_TEXT_SIZE,
    weight: 600,
    color: palette.leaf,
    room: room - x - 7,
  });
  const after = x + 7 + widthOf(pen, `${label} `, BADGE_TEXT_SIZE, 600);
  if (after + widthOf(pen, badge.shape, BADGE_TEXT_SIZE) <= room) {
    write(pen, badge.shape, after, middle, { size: BADGE_TEXT_SIZE, color: palette.text2 });
  }
  if (glyph) {
    const [name, hue] = GRADIENTS[badge.grad];
    paintGlyph(ctx, name, right - 15, middle, 11, palette[hue], palette.surface);
  }
}
