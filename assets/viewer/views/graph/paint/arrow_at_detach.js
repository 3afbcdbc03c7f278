// @ts-check
/**
 * Paints a broken arrow above each box that reads a detached value from another box, or above the
 * frame whose header would be under it. Modules that get no gradient because of it have a box.
 */

import { setStroke, tracePath } from "../../../canvas/shapes.js";
import { paintText, roundRect, widthOf, write } from "../../../canvas/text_fitted_to_width.js";
import { HEADER_HEIGHT } from "../../../layout/group_sizes_and_inner_positions.js";
import { savedText } from "../../../scene/sum_and_describe_saved_bytes.js";
import { visibleFor } from "../../../scene/scene_index.js";

/** @typedef {import("../../../canvas/text_fitted_to_width.js").Pen} Pen */
/** @typedef {import("../../../layout/coordinates.js").Box} Box */

const SIZE = 10;
/** Width of the column on the left of the graph with the boxes of modules without a gradient. */
const COLUMN = 150;
/** Width of the text with saved bytes on the right of the header of a frame. */
const SAVED = 90;

/**
 * @typedef {object} Cut what one color is painted with, and one label says
 * @property {string} modules without a gradient, where a finding says that it ends; else ""
 * @property {Set<string>} lines that detach
 * @property {Set<string>} readers keys of the boxes
 */

/**
 * @param {import("../../../scene/scene_index.js").SceneIndex} sceneIndex
 * @param {Set<number>} open
 * @returns {Cut[]} one for all readers behind the same modules; one for each other reader
 */
function cutsOf(sceneIndex, open) {
  const { scene } = sceneIndex;
  const keyOf = (/** @type {number} */ node) => {
    const { kind, index } = visibleFor(sceneIndex, open, node);
    return `${kind} ${index}`;
  };
  /** @type {Map<string, Cut>} */
  const cuts = new Map();
  for (const { reader, producer, filename, lineno } of scene.detaches) {
    const key = keyOf(reader);
    if (producer >= 0 && key === keyOf(producer)) continue;
    const modules = modulesWithout(scene, filename, lineno);
    const cut = cuts.get(modules || key) ?? { modules, lines: new Set(), readers: new Set() };
    cut.lines.add(`detach, line ${lineno}`);
    cut.readers.add(key);
    cuts.set(modules || key, cut);
  }
  return [...cuts.values()];
}

/**
 * @param {Pick<import("./graph.js").Look, "placement" | "sceneIndex">} graph
 * @returns {import("../camera.js").Rect} its boxes, and the column on their left if it has one
 */
export function graphRect({ placement: { width, height }, sceneIndex }) {
  const left = cutsOf(sceneIndex, new Set()).some(({ modules }) => modules) ? COLUMN : 0;
  return { x: -left, y: 0, w: width + left, h: height };
}

/**
 * Paint a box for the modules without a gradient, in a column of its own, and what leads to it.
 *
 * @param {Pen} pen
 * @param {import("./graph.js").Look} look
 * @param {Box[]} boxes
 */
export function paintModulesWithout(pen, { sceneIndex, open }, boxes) {
  const { ctx, palette } = pen;
  let free = 4;
  let x = -20;
  for (const { modules, lines, readers } of cutsOf(sceneIndex, open)) {
    const all = boxes.filter(({ kind, ref }) => readers.has(`${kind} ${ref}`));
    // Those of like steps, which are one box, say no more than the nodes of the open one.
    const nodes = all.filter(({ kind }) => kind === "node");
    const ends = nodes.length ? nodes : all;
    if (!modules || !ends.length) continue;
    const y = Math.max(free, Math.min(...ends.map((end) => end.y)) - 70);
    const style = { size: SIZE, weight: 600, color: palette.path };
    const width = COLUMN - 14;
    setStroke(ctx, palette.path, 1.6);
    ctx.setLineDash([3, 2]);
    ctx.beginPath();
    // The gap is at the cross.
    tracePath(ctx, [x, y + 32], [x, y + 38]);
    ctx.moveTo(x, y + 50);
    ctx.lineTo(x, Math.max(y + 54, ...ends.map((end) => end.y - 7)));
    for (const end of ends) {
      ctx.moveTo(x, end.y - 7);
      ctx.lineTo(end.x + 10, end.y - 7);
      ctx.lineTo(end.x + 10, end.y);
    }
    ctx.stroke();
    roundRect(ctx, -COLUMN + 4, y, width, 32, 4);
    ctx.stroke();
    ctx.setLineDash([]);
    paintCross(pen, x, y + 44);
    write(pen, modules, 9 - COLUMN, y + 10, { ...style, room: width - 10 });
    write(pen, "no gradient", 9 - COLUMN, y + 23, { ...style, weight: 400 });
    const label = [...lines].join(" · ");
    write(pen, label, x - 10, y + 44, { ...style, align: "right", room: width - 26 });
    free = y + 62;
    x += 5;
  }
}

/**
 * @param {Pen} pen
 * @param {number} x
 * @param {number} y
 */
function paintCross({ ctx }, x, y) {
  ctx.beginPath();
  for (const side of [-3, 3]) {
    ctx.moveTo(x - side, y - 3);
    ctx.lineTo(x + side, y + 3);
  }
  ctx.stroke();
}

/**
 * @param {Pen} pen
 * @param {import("./graph.js").Look} look
 * @param {Box[]} boxes in view
 */
export function paintDetaches(pen, look, boxes) {
  const { ctx, palette } = pen;
  const cuts = cutsOf(look.sceneIndex, look.open).filter(({ modules }) => !modules);
  const edge = look.camera.x + look.width / look.camera.scale;
  setStroke(ctx, palette.text2, 1.4);
  for (const box of boxes) {
    const cut = cuts.find(({ readers }) => readers.has(`${box.kind} ${box.ref}`));
    if (!cut) continue;
    const text = [...cut.lines].join(" · ");
    const width = widthOf(pen, text, SIZE + 1, 600) + 8;
    const { groups } = look.sceneIndex.scene;
    /** @type {Box | undefined} */
    let above = box;
    let [x, y, left] = [0, 0, 0];
    const header = () => boxes.find((each) => hasHeader(groups, each, box, left, width, y));
    while (above) {
      [x, y] = [above.x + above.width + 10, above.y - 9];
      // On the right of the arrow, or else on its left.
      left = x;
      if (x + width < edge && !header()) break;
      left = x - 32 - width;
      const frame = header();
      if (!frame) break;
      // In the header, between its texts.
      const { header_width: used } = groups[frame.ref];
      const saved = widthOf(pen, savedText(groups[frame.ref]), SIZE, 400) + 24;
      const [from, to] = [
        Math.max(box.x + 4, frame.x + used + 12),
        Math.min(edge, frame.x + frame.width - saved),
      ];
      if (y >= frame.y && from + 32 + width <= to && from + 32 <= box.x + box.width) {
        x = Math.min(to - 8 - width, box.x + box.width - 8);
        left = x + 8;
        break;
      }
      above = frame;
    }
    ctx.setLineDash([3, 2]);
    // It leads from the box, also from above a header.
    tracePath(ctx, [x - 24, Math.max(y + 9, box.y)], [x - 24, y], [x - 3, y]);
    ctx.stroke();
    ctx.setLineDash([]);
    paintCross(pen, x, y);
    const style = { size: SIZE + 1, weight: 600, color: palette.text };
    paintText(pen, text, left < x ? left : x + 8, y, style);
  }
}

/**
 * Return the modules whose parameters have no gradient because of a line, if a finding names it.
 *
 * @param {import("../../../types.js").Scene} scene
 * @param {string} filename
 * @param {number} lineno
 * @returns {string} "" if none does
 */
function modulesWithout({ findings, answers, cause_steps: steps }, filename, lineno) {
  if (
    ![...findings].some((each) => each.culprit_file === filename && each.culprit_line === lineno)
  ) {
    return "";
  }
  const names = [...answers]
    .filter((each) => each.subject[0] === "p" && !each.ordinary)
    .filter((each) =>
      each.steps.some((at) => steps[at].filename === filename && steps[at].lineno === lineno),
    )
    .map(({ target }) => target.replace(/\.[^.]*$/, ""));
  const modules = [...new Set(names)];
  const more = modules.length > 2 ? ` and ${modules.length - 1} more` : "";
  return more ? modules[0] + more : modules.join(", ");
}

/**
 * @param {import("../../../types.js").Scene["groups"]} groups
 * @param {Box} each
 * @param {Box} box
 * @param {number} left
 * @param {number} width
 * @param {number} y of a label above the box
 * @returns {boolean} whether the label is on the edge or on the header's text of a frame around the
 *   box
 */
function hasHeader(groups, { kind, ref, ...frame }, box, left, width, y) {
  if (kind !== "frame" || frame.y >= box.y || y + 6 <= frame.y) return false;
  const right = frame.x + frame.width;
  if (box.x < frame.x || box.x > right || left >= right || left + width <= frame.x) return false;
  if (left < frame.x || left + width > right) return true;
  const isText = left < frame.x + groups[ref].header_width || left + width > right - SAVED;
  return isText && y - 6 < frame.y + HEADER_HEIGHT - 6;
}
