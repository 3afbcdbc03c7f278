// @ts-check
/** What stands beside a node: saved tensors on its right, parameters on its left. */

import { chipWords } from "../../../scene/format.js";
import { paintGlyph } from "../../../canvas/icons.js";
import { roundRect, widthOf, write } from "../../../canvas/text.js";
import { mix } from "../../../canvas/theme.js";

/** @typedef {import("../../../canvas/text.js").Pen} Pen */
/** @typedef {import("../../../layout/coordinates.js").Box} Box */

export const TAG_GAP = 9;

export const TAG_SIZE = 11;
const CHIP_GAP = 5;

const TAG_HEIGHT = 19;

/** @type {Record<string, [import("../../../canvas/icons.js").GlyphName, "leaf" | "mutation"]>} */
const GRADIENTS = {
  ok: ["check", "leaf"],
  none: ["none", "leaf"],
  zero: ["zero", "mutation"],
  nan: ["nan", "mutation"],
};

/**
 * @param {Pen} pen
 * @param {Box} box
 * @param {import("../../../types.js").Chip[]} chips
 */
export function paintChips(pen, box, chips) {
  let x = box.x + box.width + TAG_GAP;
  const y = box.y + (box.height - TAG_HEIGHT) / 2;
  for (const chip of chips) {
    if (!chip.width) continue;
    paintChip(pen, chip, x, y);
    x += chip.width + CHIP_GAP;
  }
  const hidden = chips.filter((chip) => !chip.width).length;
  if (hidden) {
    const { text2 } = pen.palette;
    write(pen, `+${hidden}`, x + 1, box.y + box.height / 2, { size: TAG_SIZE, color: text2 });
  }
}

/**
 * @param {Pen} pen
 * @param {import("../../../types.js").Chip} chip
 * @param {number} x
 * @param {number} y
 */
function paintChip(pen, chip, x, y) {
  const { ctx, palette } = pen;
  const hues = { broken: palette.mutation, recomputed: palette.recompute };
  const hue =
    chip.state === "broken" || chip.state === "recomputed" ? hues[chip.state] : palette.saved;
  ctx.fillStyle = mix(hue, palette.surface, palette.chipTint);
  roundRect(ctx, x, y, chip.width, TAG_HEIGHT, 3);
  ctx.fill();
  ctx.lineWidth = 1;
  ctx.strokeStyle = mix(hue, palette.surface, 0.55);
  ctx.stroke();
  ctx.fillStyle = hue;
  ctx.beginPath();
  ctx.roundRect(x - 0.5, y - 0.5, 4, TAG_HEIGHT + 1, [3, 0, 0, 3]);
  ctx.fill();
  const words = chipWords(chip);
  const middle = y + TAG_HEIGHT / 2;
  let at = x + 9;
  const put = (/** @type {string} */ text, /** @type {string} */ color, weight = 400) => {
    write(pen, text, at, middle, { size: TAG_SIZE, color, weight, room: x + chip.width - 3 - at });
    at += widthOf(pen, text, TAG_SIZE, weight);
  };
  if (words.slot) put(words.version ? `${words.slot} ` : words.slot, palette.text);
  if (words.version) put(words.version, hue, 600);
  put(words.slot || words.version ? ` · ${words.bytes}` : words.bytes, palette.text2);
}

/**
 * @param {Pen} pen
 * @param {Box} box
 * @param {import("../../../types.js").Pennant[]} pennants
 */
export function paintPennants(pen, box, pennants) {
  let right = box.x - TAG_GAP;
  const y = box.y + (box.height - TAG_HEIGHT) / 2;
  for (const pennant of pennants) {
    if (!pennant.width) continue;
    paintPennant(pen, pennant, right - pennant.width, y);
    right -= pennant.width + CHIP_GAP;
  }
}

/**
 * @param {Pen} pen
 * @param {import("../../../types.js").Pennant} pennant
 * @param {number} x
 * @param {number} y
 */
function paintPennant(pen, pennant, x, y) {
  const { ctx, palette } = pen;
  const right = x + pennant.width;
  const middle = y + TAG_HEIGHT / 2;
  ctx.beginPath();
  ctx.moveTo(x + 2, y);
  ctx.lineTo(right - 7, y);
  ctx.lineTo(right, middle);
  ctx.lineTo(right - 7, y + TAG_HEIGHT);
  ctx.lineTo(x + 2, y + TAG_HEIGHT);
  ctx.quadraticCurveTo(x, y + TAG_HEIGHT, x, y + TAG_HEIGHT - 2);
  ctx.lineTo(x, y + 2);
  ctx.quadraticCurveTo(x, y, x + 2, y);
  ctx.fillStyle = mix(palette.leaf, palette.surface, palette.chipTint);
  ctx.fill();
  ctx.lineWidth = 1;
  ctx.strokeStyle = mix(palette.leaf, palette.surface, 0.65);
  ctx.stroke();
  const glyph = pennant.grad === "unknown" ? 0 : 14;
  const room = right - 9 - glyph;
  write(pen, pennant.label, x + 7, middle, {
    size: TAG_SIZE,
    weight: 600,
    color: palette.leaf,
    room: room - x - 7,
  });
  const after = x + 7 + widthOf(pen, `${pennant.label} `, TAG_SIZE, 600);
  write(pen, pennant.shape, after, middle, {
    size: TAG_SIZE,
    color: palette.text2,
    room: room - after,
  });
  if (glyph) {
    const [name, hue] = GRADIENTS[pennant.grad];
    paintGlyph(ctx, name, right - 15, middle, 11, palette[hue], palette.surface);
  }
}
