// @ts-check
/**
 * Coordinates of everything visible, for any set of open groups.
 *
 * `autogradviz/scene/place.py` does the same sums in the same order.
 */

import { MIN_VIEWS, measure } from "./sizes.js";
import { isStub } from "./group_geometry.js";

const LABEL_RISE = 7;
const STUB = 9;

/** @typedef {import("../types.js").Scene} Scene */
/** @typedef {import("../types.js").SceneGroup} SceneGroup */
/** @typedef {import("./group_geometry.js").Sheet} Sheet */
/** @typedef {[x: number, y: number]} Point */

/**
 * One thing that is visible: `ref` is a node or a group; a "frame" is an open group.
 *
 * @typedef {object} Box
 * @property {"node" | "group" | "frame"} kind
 * @property {number} ref
 * @property {number} x
 * @property {number} y
 * @property {number} width
 * @property {number} height
 */

/**
 * One visible line, from its source to its target, in straight pieces.
 *
 * @typedef {object} Line
 * @property {number} group
 * @property {number} link in that group
 * @property {Point[]} points
 * @property {number} start the first point's y
 * @property {number} end the last point's y
 * @property {boolean} arrow it ends at a box
 * @property {boolean} stub only one end of a long link
 * @property {Point | null} label the middle of its count of views
 */

/**
 * Where everything visible stands; frames come before what they hold.
 *
 * @typedef {object} Placement
 * @property {number} width
 * @property {number} height
 * @property {Box[]} boxes
 * @property {Line[]} lines
 */

/**
 * The coordinates of what is visible; a group shows if all groups around it are open.
 *
 * @param {Scene} scene
 * @param {Set<number>} open
 * @param {Map<number, Sheet>} [sheets] of open groups that were measured before; filled
 * @returns {Placement}
 */
export function place(scene, open, sheets = new Map()) {
  if (!sheets.has(0)) measure(scene, 0, open, sheets);
  const { width, height } = /** @type {Sheet} */ (sheets.get(0));
  /** @type {Placement} */
  const placement = { width, height, boxes: [], lines: [] };
  emit(scene, 0, [0, 0], sheets, placement);
  return placement;
}

/**
 * Move a measured group to its place, and everything in it.
 *
 * @param {Scene} scene
 * @param {number} index
 * @param {Point} origin
 * @param {Map<number, Sheet>} sheets
 * @param {Placement} out
 */
function emit(scene, index, origin, sheets, out) {
  const group = scene.groups[index];
  const sheet = /** @type {Sheet} */ (sheets.get(index));
  const [dx, dy] = origin;
  const add = (/** @type {Box["kind"]} */ kind, ref = 0, x = 0, y = 0, width = 0, height = 0) =>
    out.boxes.push({ kind, ref, x, y, width, height });
  if (index) add("frame", index, dx, dy, sheet.width, sheet.height);
  group.cells.forEach((cell, i) => {
    const x = dx + sheet.x[i];
    const y = dy + sheet.y[i];
    const width = sheet.boxWidth[i];
    const inner = cell.kind === "group" ? sheets.get(cell.ref) : undefined;
    if (inner) emit(scene, cell.ref, [x - inner.axis, y], sheets, out);
    else if (cell.kind === "group" || cell.kind === "node") {
      add(cell.kind, cell.ref, x - width / 2, y, width, sheet.boxHeight[i]);
    }
  });
  group.links.forEach((link, number) => {
    const target = group.cells[link.path[link.path.length - 1]];
    const arrow = target.kind === "node" || (target.kind === "group" && !sheets.has(target.ref));
    if (isStub(link, sheet)) out.lines.push(...stubsOf(group, sheet, number, origin, arrow));
    else out.lines.push(lineOf(group, sheet, number, origin, arrow));
  });
}

/**
 * A link as vertical and horizontal pieces.
 *
 * @param {SceneGroup} group
 * @param {Sheet} sheet
 * @param {number} number
 * @param {Point} origin
 * @param {boolean} arrow
 * @returns {Line}
 */
function lineOf(group, sheet, number, [dx, dy], arrow) {
  const link = group.links[number];
  const { path } = link;
  const source = path[0];
  const last = path.length - 1;
  const target = path[last];
  let x = dx + sheet.sourceX[number];
  let y = dy + sheet.y[source] + (link.reversed ? sheet.boxHeight[source] : 0);
  const start = sheet.beside[number] ? y + sheet.boxHeight[source] / 2 : y;
  /** @type {Point[]} */
  let points = [[x, y]];
  /** @type {Point} */
  let label = [x, link.reversed ? y + LABEL_RISE : y - LABEL_RISE];
  if (sheet.beside[number]) {
    const lane = dx + sheet.x[path[1]];
    const middle = y + sheet.boxHeight[source] / 2;
    points = [
      [x - sheet.boxWidth[source] / 2, middle],
      [lane, middle],
    ];
    label = [lane, y - LABEL_RISE];
    x = lane;
  }
  for (let i = 0; i < last; i++) {
    const track = sheet.trackY.get(`${number},${i}`);
    if (track === undefined) continue;
    const to = i === last - 1 ? sheet.targetX[number] : sheet.x[path[i + 1]];
    points.push([x, dy + track], [dx + to, dy + track]);
    x = dx + to;
  }
  y = dy + sheet.y[target] + (link.reversed ? 0 : sheet.boxHeight[target]);
  points.push([x, y]);
  return {
    group: group.index,
    link: number,
    points,
    start,
    end: y,
    arrow,
    stub: false,
    label: link.views >= MIN_VIEWS ? label : null,
  };
}

/**
 * The two ends of a link that is too long to draw.
 *
 * @param {SceneGroup} group
 * @param {Sheet} sheet
 * @param {number} number
 * @param {Point} origin
 * @param {boolean} arrow
 * @returns {Line[]}
 */
function stubsOf(group, sheet, number, [dx, dy], arrow) {
  const link = group.links[number];
  const source = link.path[0];
  const target = link.path[link.path.length - 1];
  const way = link.reversed ? STUB : -STUB;
  const stub = { group: group.index, link: number, stub: true, label: null };
  const leavingX = dx + sheet.sourceX[number];
  const leavingY = dy + sheet.y[source] + (link.reversed ? sheet.boxHeight[source] : 0);
  const arrivingX = dx + sheet.targetX[number];
  const arrivingY = dy + sheet.y[target] + (link.reversed ? 0 : sheet.boxHeight[target]);
  return [
    {
      ...stub,
      points: [
        [leavingX, leavingY],
        [leavingX, leavingY + way],
      ],
      start: leavingY,
      end: leavingY + way,
      arrow: false,
    },
    {
      ...stub,
      points: [
        [arrivingX, arrivingY - way],
        [arrivingX, arrivingY],
      ],
      start: arrivingY - way,
      end: arrivingY,
      arrow,
    },
  ];
}
