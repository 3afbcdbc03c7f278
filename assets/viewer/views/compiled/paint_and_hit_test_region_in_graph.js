// @ts-check
/**
 * Paints the picture of a compiled region on a canvas, in the place of the region's node, and finds
 * the mark at a point of it.
 */

import { setStroke } from "../../canvas/shapes.js";
import { roundRect, write } from "../../canvas/text_fitted_to_width.js";
import { mix } from "../../canvas/theme.js";

/** @typedef {import("../../types.js").Scene} Scene */
/** @typedef {import("../../types.js").SceneCompiledMark} Mark */
/** @typedef {import("../../canvas/text_fitted_to_width.js").Pen} Pen */
/** @typedef {import("../../layout/coordinates.js").Box} Box */

/** Between the box of the node and the picture, as in `build_groups.py`. */
const MARGIN = 12;
/** Size in screen pixels below which text is left out. */
const MIN_TEXT = 7;
const RECOMPUTED = ["recomputed", "checkpoint", "curve", "recompute-text", "curve-label"];
const BOLD = ["strong", "line", "lane-name", "recompute-text", "curve-label"];

/** @type {WeakMap<Mark[], Map<number, Mark[]>>} */
const cache = new WeakMap();
/** @type {Map<string, Path2D>} */
const paths = new Map();

/**
 * Return the marks of the picture that opens at a node.
 *
 * @param {Scene} scene
 * @param {number} node
 * @returns {Mark[]} empty without a picture
 */
export function marksAt(scene, node) {
  const known = cache.get(scene.compiled_marks) ?? new Map();
  cache.set(scene.compiled_marks, known);
  if (!known.has(node)) {
    const region = scene.compiled_regions.find(({ nodes }) => nodes.includes(node))?.index;
    const at = scene.compiled_pictures.find((each) => each.region === region && each.initial);
    const marks = scene.compiled_marks.filter(({ picture }) => picture === at?.index);
    known.set(node, marks);
  }
  return known.get(node);
}

/**
 * Return the item of a picture at a point.
 *
 * @param {Scene} scene
 * @param {Box} box of the node
 * @param {number} x
 * @param {number} y
 * @returns {number} -1 without one
 */
export function itemAt(scene, box, x, y) {
  const [px, py] = [x - box.x - MARGIN, y - box.y - MARGIN];
  const found = marksAt(scene, box.ref).findLast(
    (mark) =>
      mark.item >= 0 &&
      (mark.shape === "rect"
        ? px >= mark.x && px <= mark.x + mark.width && py >= mark.y && py <= mark.y + mark.height
        : mark.shape === "text" && px >= mark.x && px < mark.x + 120 && Math.abs(py - mark.y) < 10),
  );
  return found?.item ?? -1;
}

/**
 * @param {Pen} pen
 * @param {Scene} scene
 * @param {Box} box of the node
 * @param {import("../../shared_view_state.js").SavedForm} savedForm
 */
export function paintRegion(pen, scene, box, savedForm) {
  const { ctx, palette } = pen;
  const { surface, text, text2 } = palette;
  const { error, state } = scene.nodes[box.ref];
  const failed = error || state === "failed";
  roundRect(ctx, box.x, box.y, box.width, box.height, 6);
  ctx.fillStyle = surface;
  ctx.fill();
  setStroke(ctx, failed ? palette.mutation : palette.backward, failed ? 1.6 : 1.1);
  ctx.stroke();
  ctx.save();
  ctx.translate(box.x + MARGIN, box.y + MARGIN);
  /** @type {Mark | undefined} */
  let around;
  for (const mark of marksAt(scene, box.ref)) {
    const styles = mark.style.split(" ");
    const [kind] = styles;
    const has = (/** @type {string} */ style) => styles.includes(style);
    if (has(savedForm === "after hooks" ? "before" : "after")) continue;
    const hue = styles.some((style) => RECOMPUTED.includes(style) && !has("note"))
      ? palette.recompute
      : has("value")
        ? palette.saved
        : has("input")
          ? palette.leaf
          : has("forward") || has("backward")
            ? palette.backward
            : text2;
    const tint = (/** @type {number} */ share) => mix(hue, surface, share);
    if (mark.shape === "text") {
      const size = kind === "strong" ? 12 : kind === "on" || kind === "line" ? 11 : 10;
      if (size * pen.scale < MIN_TEXT) continue;
      const center = kind === "on";
      const plain = has("forward") || kind === "label" || BOLD.includes(kind);
      const inside = mark.item >= 0 && around?.item === mark.item && around;
      write(
        kind === "code" ? { ...pen, family: "ui-monospace, monospace" } : pen,
        mark.text,
        mark.x,
        mark.y - size * 0.37,
        {
          size,
          color: plain && hue !== palette.recompute ? text : hue,
          weight: BOLD.includes(kind) || has("backward") ? 600 : 400,
          align: center ? "center" : "left",
          room: inside
            ? center
              ? inside.width - 6
              : inside.x + inside.width - mark.x
            : mark.width || undefined,
        },
      );
      continue;
    }
    const hollow = has("recomputed") || has("partitioner");
    ctx.setLineDash(
      kind === "checkpoint" ? [7, 4] : kind === "link" ? [2, 2] : hollow ? [4, 2.5] : [],
    );
    const faint = kind === "chip" || kind === "ribbon" || kind === "link";
    ctx.strokeStyle = kind === "block" ? palette.line2 : faint ? tint(0.52) : hue;
    ctx.fillStyle =
      kind === "lane"
        ? palette.raised
        : kind === "bar"
          ? hue
          : kind === "curve" || (kind === "box" && has("backward"))
            ? tint(0.18)
            : kind === "chip" || has("odd")
              ? tint(0.1)
              : surface;
    if (mark.shape === "path") {
      ctx.lineWidth = mark.width || 1.2;
      const path = pathOf(mark.text);
      if (kind === "curve") ctx.fill(path);
      ctx.stroke(path);
      continue;
    }
    const frame = kind === "block" || kind === "checkpoint";
    roundRect(ctx, mark.x, mark.y, mark.width, mark.height, frame ? 8 : kind === "bar" ? 1 : 4);
    ctx.lineWidth = 1.1;
    if (!frame) ctx.fill();
    if (kind !== "lane" && kind !== "bar") ctx.stroke();
    if (kind === "box" || kind === "chip") around = mark;
  }
  ctx.setLineDash([]);
  ctx.restore();
}

/**
 * @param {string} data of a path
 * @returns {Path2D & {shape?: string}} which an SVG context can write
 */
function pathOf(data) {
  let path = paths.get(data);
  if (!path) {
    path = Object.assign(new Path2D(data), { shape: data });
    paths.set(data, path);
  }
  return path;
}
