// @ts-check
/** Paints groups: the frame of an open group, the box of a closed one. */

import { contentsText, largerSavedText, savedText } from "../../../scene/saved_bytes.js";
import { formatCount, plural } from "../../../scene/format.js";
import { paintGlyph } from "../../../canvas/icons.js";
import { HEADER_HEIGHT, STACK_HEIGHT } from "../../../layout/measure_groups.js";
import { roundRect, widthOf, write } from "../../../canvas/text.js";
import { mix } from "../../../canvas/theme.js";

/** @typedef {import("../../../canvas/text.js").Pen} Pen */
/** @typedef {import("../../../types.js").SceneGroup} SceneGroup */
/** @typedef {import("../../../layout/coordinates.js").Box} Box */

const DASHES = [6, 4];

/** Height in pixels of a header that has room for its text. */
const MIN_HEADER = 14;

/**
 * Return whether a frame is drawn as a checkpoint region. In a run of blocks, the blocks are.
 *
 * @param {SceneGroup} group
 * @returns {boolean}
 */
function isDashed(group) {
  return !!group.checkpointed && group.repeat === 1;
}

/**
 * Return the background color of an open group.
 *
 * @param {import("../../../canvas/theme.js").Palette} palette
 * @param {SceneGroup} group
 * @returns {string}
 */
export function frameFill(palette, group) {
  if (!group.index) return palette.canvas;
  if (isDashed(group)) return mix(palette.recompute, palette.canvas, 0.05);
  return mix(palette.text, palette.canvas, 0.025);
}

/**
 * @param {Pen} pen
 * @param {Box} box
 * @param {SceneGroup} group
 */
export function paintFrame(pen, box, group) {
  const { ctx, palette } = pen;
  const { x, y, width, height } = box;
  const dashed = isDashed(group);
  const hue = dashed ? palette.recompute : palette.text;
  roundRect(ctx, x, y, width, height, 8);
  ctx.fillStyle = frameFill(palette, group);
  ctx.fill();
  ctx.strokeStyle = dashed ? hue : mix(hue, palette.canvas, 0.22);
  ctx.lineWidth = dashed ? 1.4 : 1;
  if (dashed) ctx.setLineDash(DASHES);
  ctx.stroke();
  ctx.setLineDash([]);
}

/**
 * Paint the header of a frame, over the lines that cross it.
 *
 * @param {Pen} pen
 * @param {Box} box
 * @param {SceneGroup} group
 */
export function paintHeader(pen, box, group) {
  const { ctx, palette } = pen;
  if (HEADER_HEIGHT * pen.scale < MIN_HEADER) return; // named by `paintMapLabels`
  const middle = box.y + HEADER_HEIGHT / 2 + 3;
  const label = { size: 12.5, weight: 600, color: palette.text };
  const at = box.x + 30 + widthOf(pen, group.label, 12.5, 600) + 8;
  const pill =
    isDashed(group) && group.recomputes
      ? paintRecomputes(pen, box.x + box.width - 8, middle, group)
      : 0;
  const right = box.x + box.width - pill - 14;
  const note = headerNote(group);
  ctx.fillStyle = frameFill(palette, group);
  const covered = Math.min(right - at, widthOf(pen, note, 11.5) + 4);
  ctx.fillRect(box.x + 10, middle - 8, at + (note ? covered : -4) - box.x - 10, 16);
  paintGlyph(ctx, "down", box.x + 18, middle, 14, palette.text2);
  write(pen, group.label, box.x + 30, middle, { ...label, room: box.width - 40 });
  write(pen, note, at, middle, { size: 11.5, color: palette.text2, room: right - at });
  const saved = savedText(group);
  const width = widthOf(pen, saved, 10.5);
  // On the right of the line that enters the group at its middle.
  if (right - width < Math.max(at + widthOf(pen, note, 11.5) + 16, box.x + box.width / 2)) return;
  write(pen, saved, right, middle, { size: 10.5, color: palette.text2, align: "right" });
}

/**
 * Return the text after the label of an open group; `header_width` includes it.
 *
 * @param {SceneGroup} group
 * @returns {string}
 */
function headerNote(group) {
  const notes = group.type_name === group.label ? [] : [group.type_name];
  if (group.repeat > 1) notes.push(`×${formatCount(group.repeat)} identical`);
  else if (group.checkpointed) notes.push("checkpoint region");
  return notes.filter(Boolean).join(" · ");
}

/**
 * Paint the number of recomputations on the right of a header; return the width.
 *
 * @param {Pen} pen
 * @param {number} right
 * @param {number} middle
 * @param {SceneGroup} group
 * @returns {number}
 */
function paintRecomputes(pen, right, middle, group) {
  const text = plural(group.recomputes, "recompute");
  const width = widthOf(pen, text, 10, 500) + 28;
  paintPill(pen, right - width, middle, width, pen.palette.recompute);
  paintGlyph(pen.ctx, "checkpoint", right - width + 12, middle, 12, pen.palette.recompute);
  write(pen, text, right - width + 21, middle, {
    size: 10,
    weight: 500,
    color: pen.palette.recompute,
  });
  return width;
}

/**
 * @param {Pen} pen
 * @param {number} x
 * @param {number} middle
 * @param {number} width
 * @param {string} hue
 */
function paintPill({ ctx, palette }, x, middle, width, hue) {
  roundRect(ctx, x, middle - 8, width, 16, 8);
  ctx.fillStyle = palette.surface;
  ctx.fill();
  ctx.strokeStyle = hue;
  ctx.lineWidth = 1;
  ctx.stroke();
}

/**
 * @param {Pen} pen
 * @param {Box} box
 * @param {SceneGroup} group
 * @param {import("../../../scene/colors.js").Tint | null} tint
 */
export function paintClosed(pen, box, group, tint) {
  const { ctx, palette } = pen;
  const stacked = group.repeat > 1;
  const height = box.height - (stacked ? STACK_HEIGHT : 0);
  const checkpointed = group.checkpointed;
  let border = checkpointed ? palette.recompute : palette.line2;
  if (group.error) border = palette.mutation;
  ctx.lineWidth = group.error || checkpointed ? 1.4 : 1.1;
  ctx.fillStyle = checkpointed
    ? mix(palette.recompute, palette.surface, palette.badgeTint / 2)
    : palette.surface;
  if (tint) ctx.fillStyle = mix(palette[tint.hue], palette.surface, tint.share * 0.5);
  for (const layer of stacked ? [2, 1, 0] : [0]) {
    ctx.strokeStyle = layer ? mix(border, palette.surface, 0.6) : border;
    if (checkpointed) ctx.setLineDash(DASHES);
    const inset = 3 * layer;
    roundRect(ctx, box.x + inset, box.y + inset, box.width - 2 * inset, height, 7);
    ctx.fill();
    ctx.stroke();
    ctx.setLineDash([]);
  }
  if (height * pen.scale >= MIN_HEADER - 1) paintClosedText(pen, box, height, group);
  if (group.error) {
    paintGlyph(ctx, "failed", box.x + box.width - 1, box.y, 16, palette.mutation, palette.surface);
  }
}

/**
 * @param {Pen} pen
 * @param {Box} box
 * @param {number} height
 * @param {SceneGroup} group
 */
function paintClosedText(pen, box, height, group) {
  const { palette } = pen;
  const middle = box.y + height / 2;
  const ran = group.state !== "not_run";
  paintGlyph(pen.ctx, "right", box.x + 14, middle, 14, palette.text2);
  const color = ran ? palette.text : palette.text2;
  const saved = savedText(group);
  const nodes = contentsText(group);
  const labelWidth = widthOf(pen, group.label, 12.5, 600);
  const repeats =
    group.repeat > 1
      ? [`×${formatCount(group.repeat)} identical`, `×${formatCount(group.repeat)}`]
      : [""];
  const pill = (/** @type {string} */ text) => (text ? widthOf(pen, text, 10, 500) + 27 : 8);
  const counterWidth = group.recomputes ? 32 : 0;
  // The first combination that has room; the name and the multiplicity come first.
  const fits = (/** @type {string} */ note, /** @type {string} */ repeat) =>
    labelWidth + pill(repeat) + counterWidth + widthOf(pen, note, 10.5) + 34 <= box.width;
  const notes = [
    [nodes, saved].filter(Boolean).join(" · "),
    saved || nodes,
    largerSavedText(group),
    "",
  ];
  const forms = notes.flatMap((note) => repeats.map((repeat) => ({ note, repeat })));
  const { note: count, repeat } = forms.find((form) => fits(form.note, form.repeat)) ?? {
    note: "",
    repeat: repeats[repeats.length - 1],
  };
  const right = box.x + box.width - 10;
  const countWidth = widthOf(pen, count, 10.5);
  write(pen, count, right, middle, { size: 10.5, color: palette.text2, align: "right" });
  let at = box.x + 24;
  const room = right - countWidth - 8;
  write(pen, group.label, at, middle, { size: 12.5, weight: 600, color, room: room - at });
  at += widthOf(pen, group.label, 12.5, 600) + 8;
  if (repeat) at = paintRepeat(pen, at, middle, repeat, room);
  if (group.recomputes) paintCount(pen, at, middle, group.recomputes, room);
  else if (group.repeat === 1 && widthOf(pen, group.type_name, 10.5) <= room - at) {
    write(pen, group.type_name, at, middle, { size: 10.5, color: palette.text3, room: room - at });
  }
}

/**
 * @param {Pen} pen
 * @param {number} x
 * @param {number} middle
 * @param {string} repeat
 * @param {number} room
 * @returns {number} x at which the following text may start
 */
function paintRepeat(pen, x, middle, repeat, room) {
  const width = widthOf(pen, repeat, 10, 500) + 14;
  if (x + width > room) return x;
  paintPill(pen, x, middle, width, pen.palette.line2);
  write(pen, repeat, x + 7, middle, { size: 10, weight: 500, color: pen.palette.text2 });
  return x + width + 5;
}

/**
 * @param {Pen} pen
 * @param {number} x
 * @param {number} middle
 * @param {number} count
 * @param {number} room
 */
function paintCount(pen, x, middle, count, room) {
  const { palette } = pen;
  const width = widthOf(pen, String(count), 10, 500) + 24;
  if (x + width > room) return;
  paintPill(pen, x, middle, width, palette.recompute);
  paintGlyph(pen.ctx, "checkpoint", x + 10, middle, 11, palette.recompute);
  write(pen, String(count), x + 17, middle, { size: 10, weight: 500, color: palette.recompute });
}

const MAP_LABEL_SIZE = 11;

/**
 * Write the names of groups at a fixed size on the screen, as on a map, where they are too small
 * for their own text. Outer groups come first; a name that would cover another one is left out.
 *
 * @param {Pen} pen
 * @param {Box[]} boxes outer groups first
 * @param {SceneGroup[]} groups
 */
export function paintMapLabels(pen, boxes, groups) {
  const { ctx, palette, scale } = pen;
  if (HEADER_HEIGHT * scale >= MIN_HEADER) return;
  const size = MAP_LABEL_SIZE / scale;
  const height = 15 / scale;
  /** @type {[x: number, y: number, right: number, bottom: number][]} */
  const taken = [];
  for (const box of boxes) {
    const group = groups[box.ref];
    const room = box.width - 8 / scale;
    if (box.kind === "node" || room * scale < 24) continue;
    const text = group.repeat > 1 ? `${group.label} ×${group.repeat}` : group.label;
    const width = Math.min(widthOf(pen, text, size, 600), room) + 6 / scale;
    const x = box.x + 2 / scale;
    const y = box.kind === "frame" ? box.y + 2 / scale : box.y + (box.height - height) / 2;
    const [right, bottom] = [x + width, y + height];
    if (taken.some(([l, t, r, b]) => x < r && right > l && y < b && bottom > t)) continue;
    taken.push([x, y, right, bottom]);
    ctx.fillStyle = `${palette.surface}e0`;
    roundRect(ctx, x, y, width, height, 3 / scale);
    ctx.fill();
    write(pen, text, x + 3 / scale, y + height / 2, {
      size,
      weight: 600,
      color: group.error ? palette.mutation : palette.text,
      room: width - 5 / scale,
    });
  }
}
