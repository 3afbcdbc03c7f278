// @ts-check
/** Paints groups: the frame of an open group, the box of a closed one. */

import { fillBox, setStroke } from "../../../canvas/shapes.js";
import {
  contentsText,
  largerSavedText,
  savedText,
} from "../../../scene/sum_and_describe_saved_bytes.js";
import { formatCount, plural, dotted } from "../../../scene/format_numbers_and_names.js";
import { paintGlyph } from "../../../canvas/draw_icon.js";
import { HEADER_HEIGHT, STACK_HEIGHT } from "../../../layout/group_sizes_and_inner_positions.js";
import { readableSize, roundRect, widthOf, write } from "../../../canvas/text_fitted_to_width.js";
import { mix } from "../../../canvas/theme.js";

/** @typedef {import("../../../canvas/text_fitted_to_width.js").Pen} Pen */
/** @typedef {import("../../../types.js").SceneGroup} SceneGroup */
/** @typedef {import("../../../layout/coordinates.js").Box} Box */

const DASHES = [6, 4];
const PILL_SIZE = 10;

/** Width of what is left of a header in a view that shows less of its frame. */
const MIN_TITLE = 120;

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

/** Width of the bar of a group that saves all bytes. */
const BYTES_WIDTH = 160;

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
  setStroke(ctx, dashed ? hue : mix(hue, palette.canvas, 0.22), dashed ? 1.4 : 1);
  if (dashed) ctx.setLineDash(DASHES);
  ctx.stroke();
  ctx.setLineDash([]);
}

/**
 * Paint the header of a frame, over the lines that cross it. A name that is outside of the view is
 * written at its border, without the chevron.
 *
 * @param {Pen} pen
 * @param {Box} frame
 * @param {SceneGroup} group
 * @param {number} leftmost of the view
 * @param {number} rightmost
 */
export function paintHeader(pen, frame, group, leftmost, rightmost) {
  const { ctx, palette } = pen;
  const from = Math.max(frame.x, Math.min(leftmost - 6, frame.x + frame.width - MIN_TITLE));
  const until = Math.min(frame.x + frame.width, Math.max(rightmost, from + MIN_TITLE));
  const box = { ...frame, x: from, width: until - from };
  if (HEADER_HEIGHT * pen.scale < MIN_HEADER) return; // named by `paintMapLabels`
  const middle = box.y + HEADER_HEIGHT / 2 + 3;
  const label = { size: 12.5, weight: 600, color: palette.text };
  const nameAt = box.x + (from > frame.x ? 10 : 30);
  const at = nameAt + widthOf(pen, group.label, 12.5, 600) + 8;
  const recomputes =
    isDashed(group) && group.recomputes ? plural(group.recomputes, "recompute") : "";
  const pill = pillWidth(pen, recomputes, true);
  paintPill(pen, box.x + box.width - 8 - pill, middle, recomputes, true);
  const right = box.x + box.width - pill - 14;
  const note = headerNote(group);
  ctx.fillStyle = frameFill(palette, group);
  const covered = Math.min(right - at, widthOf(pen, note, 11.5) + 4);
  ctx.fillRect(box.x + 10, middle - 8, at + (note ? covered : -4) - box.x - 10, 16);
  if (from === frame.x) paintGlyph(ctx, "down", box.x + 18, middle, 14, palette.text2);
  write(pen, group.label, nameAt, middle, { ...label, room: box.width - 40 });
  write(pen, note, at, middle, { size: 11.5, color: palette.text2, room: right - at });
  const saved = savedText(group);
  const width = widthOf(pen, saved, 10.5);
  // On the right of the line that enters the group at its middle.
  if (right - width < Math.max(at + widthOf(pen, note, 11.5) + 16, frame.x + frame.width / 2))
    return;
  fillBox(ctx, frameFill(palette, group), right - width - 3, middle - 8, width + 6, 16);
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
  if (group.repeat > 1) notes.push(`×${formatCount(group.repeat)} same ops`);
  else if (group.checkpointed) notes.push("checkpoint region");
  return dotted(notes);
}

/**
 * @param {Pen} pen
 * @param {string} text
 * @param {boolean} [isRecompute] whether the glyph of a recomputation is before the text
 * @returns {number} 0 if the text would be too small to read
 */
function pillWidth(pen, text, isRecompute) {
  if (!text || !readableSize(PILL_SIZE, pen.scale)) return 0;
  return widthOf(pen, text, PILL_SIZE, 500) + (isRecompute ? 27 : 14);
}

/**
 * Paint a text in a pill, unless it would be too small to read.
 *
 * @param {Pen} pen
 * @param {number} x
 * @param {number} middle
 * @param {string} text
 * @param {boolean} [isRecompute]
 */
function paintPill(pen, x, middle, text, isRecompute) {
  const { ctx, palette } = pen;
  const width = pillWidth(pen, text, isRecompute);
  if (!width) return;
  const height = 1.6 * readableSize(PILL_SIZE, pen.scale);
  const color = isRecompute ? palette.recompute : palette.text2;
  roundRect(ctx, x, middle - height / 2, width, height, height / 2);
  ctx.fillStyle = palette.surface;
  ctx.fill();
  setStroke(ctx, isRecompute ? color : palette.line2, 1);
  ctx.stroke();
  if (isRecompute) paintGlyph(ctx, "checkpoint", x + 12, middle, 12, color);
  write(pen, text, x + (isRecompute ? 20 : 7), middle, { size: PILL_SIZE, weight: 500, color });
}

/**
 * @param {Pen} pen
 * @param {Box} box
 * @param {SceneGroup} group
 * @param {import("../../../scene/graph_colorings.js").Tint | null} tint
 * @param {number} all bytes that all nodes save, for the scale of its bar
 * @param {{share: number, backward: boolean}} [done] at a replayed time
 */
export function paintClosed(pen, box, group, tint, all, done) {
  const { ctx, palette } = pen;
  const stacked = group.repeat > 1;
  const height = box.height - (stacked ? STACK_HEIGHT : 0);
  const checkpointed = group.checkpointed;
  let border = checkpointed ? palette.recompute : mix(palette.text, palette.surface, 0.42);
  if (group.error) border = palette.mutation;
  ctx.lineWidth = group.error || checkpointed ? 1.4 : 1.1;
  ctx.fillStyle = checkpointed
    ? mix(palette.recompute, palette.surface, palette.badgeTint / 2)
    : mix(palette.text, palette.surface, 0.06);
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
  if (done?.share) {
    const hue = done.backward ? palette.backward : palette.edge;
    ctx.save();
    roundRect(ctx, box.x, box.y, box.width, height, 7);
    ctx.clip();
    fillBox(
      ctx,
      `${hue}${done.backward ? "38" : "1c"}`,
      box.x,
      box.y,
      box.width * done.share,
      height,
    );
    ctx.restore();
  }
  paintByteBar(pen, box, height, group.nbytes, group.recomputed_nbytes, all);
  if (height * pen.scale >= MIN_HEADER - 1) paintClosedText(pen, box, height, group);
  if (group.error) {
    paintGlyph(ctx, "failed", box.x + box.width - 1, box.y, 16, palette.mutation, palette.surface);
  }
}

/**
 * Paint the bytes that a box saves as a bar at its bottom, on one scale for all boxes.
 *
 * @param {Pen} pen
 * @param {Box} box
 * @param {number} height of the box
 * @param {number} saved
 * @param {number} recomputed
 * @param {number} all bytes that all nodes save
 */
export function paintByteBar({ ctx, palette, scale }, box, height, saved, recomputed, all) {
  const sum = saved + recomputed;
  const bar = Math.min(box.width - 20, (BYTES_WIDTH * sum) / (all || 1));
  if (bar < 1 || height * scale < MIN_HEADER - 1) return;
  const first = bar * (saved / sum);
  fillBox(ctx, palette.saved, box.x + 10, box.y + height - 4, first, 2.5);
  fillBox(ctx, palette.recompute, box.x + 10 + first, box.y + height - 4, bar - first, 2.5);
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
      ? [`×${formatCount(group.repeat)} same ops`, `×${formatCount(group.repeat)}`]
      : [""];
  const again = group.recomputes ? String(group.recomputes) : "";
  const counterWidth = pillWidth(pen, again, true);
  // The first combination that has room; the name and the multiplicity come first.
  const fits = (/** @type {string} */ note, /** @type {string} */ repeat) =>
    labelWidth + pillWidth(pen, repeat) + counterWidth + widthOf(pen, note, 10.5) + 47 <= box.width;
  const notes = [dotted([nodes, saved]), saved || nodes, largerSavedText(group), ""];
  const forms = notes.flatMap((note) => repeats.map((repeat) => ({ note, repeat })));
  const { note: count, repeat } = forms.find((form) => fits(form.note, form.repeat)) ?? {
    note: "",
    repeat: repeats[repeats.length - 1],
  };
  const right = box.x + box.width - 10;
  const countWidth = widthOf(pen, count, 10.5);
  write(pen, count, right, middle, { size: 10.5, color: palette.text, align: "right" });
  let at = box.x + 24;
  const room = right - countWidth - 8;
  write(pen, group.label, at, middle, { size: 12.5, weight: 600, color, room: room - at });
  at += labelWidth + 8;
  const repeatWidth = pillWidth(pen, repeat);
  if (at + repeatWidth <= room) {
    paintPill(pen, at, middle, repeat);
    at += repeatWidth && repeatWidth + 5;
  }
  if (at + counterWidth <= room) paintPill(pen, at, middle, again, true);
  if (!again && group.repeat === 1 && widthOf(pen, group.type_name, 10.5) <= room - at) {
    write(pen, group.type_name, at, middle, { size: 10.5, color: palette.text3, room: room - at });
  }
}

const MAP_LABEL_SIZE = 11;
/** Pixels that a name may take next to a smaller box. */
const MAP_ROOM = 100;

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
    const width =
      Math.min(widthOf(pen, text, size, 600), Math.max(room, MAP_ROOM / scale)) + 6 / scale;
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
