// @ts-check
/**
 * Coordinates of everything visible, for any set of open groups.
 *
 * `autogradviz/scene/layout/coordinates.py` does the same arithmetic in the same order.
 */

import { MIN_VIEWS, measure } from "./group_sizes_and_inner_positions.js";
import { isStub } from "./open_group_geometry.js";

const LABEL_RISE = 7;
const STUB_LENGTH = 9;

/** @typedef {import("../types.js").Scene} Scene */
/** @typedef {import("../types.js").SceneGroup} SceneGroup */
/** @typedef {import("./open_group_geometry.js").GroupGeometry} GroupGeometry */
/** @typedef {[x: number, y: number]} Point */

/**
 * A visible node, closed group or open group ("frame"); `ref` is its index.
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
 * A visible line from its source to its target, of straight segments.
 *
 * @typedef {object} Line
 * @property {number} group
 * @property {number} link index in that group
 * @property {Point[]} points
 * @property {number} start y of the first point
 * @property {number} end y of the last point
 * @property {boolean} arrow whether it ends at a box
 * @property {boolean} stub one of the two ends of a link that is too long to draw
 * @property {Point | null} label center of its number of views
 */

/**
 * The coordinates of everything visible. A frame comes before its contents.
 *
 * @typedef {object} Placement
 * @property {number} width
 * @property {number} height
 * @property {Box[]} boxes
 * @property {Line[]} lines
 */

/**
 * Return the coordinates of what is visible. A group is visible if all groups around it are open.
 *
 * @param {Scene} scene
 * @param {Set<number>} open
 * @param {Map<number, GroupGeometry>} [geometries] of open groups; missing ones are added
 * @returns {Placement}
 */
export function place(scene, open, geometries = new Map()) {
  if (!geometries.has(0)) measure(scene, 0, open, geometries);
  const { width, height } = /** @type {GroupGeometry} */ (geometries.get(0));
  /** @type {Placement} */
  const placement = { width, height, boxes: [], lines: [] };
  placeGroup(scene, 0, [0, 0], geometries, placement);
  return placement;
}

/**
 * Add the boxes and lines of a measured group and of the open groups in it.
 *
 * @param {Scene} scene
 * @param {number} index
 * @param {Point} origin
 * @param {Map<number, GroupGeometry>} geometries
 * @param {Placement} out
 */
function placeGroup(scene, index, origin, geometries, out) {
  const group = scene.groups[index];
  const geometry = /** @type {GroupGeometry} */ (geometries.get(index));
  const [dx, dy] = origin;
  const add = (/** @type {Box["kind"]} */ kind, ref = 0, x = 0, y = 0, width = 0, height = 0) =>
    out.boxes.push({ kind, ref, x, y, width, height });
  if (index) add("frame", index, dx, dy, geometry.width, geometry.height);
  group.cells.forEach((cell, i) => {
    const x = dx + geometry.x[i];
    const y = dy + geometry.y[i];
    const width = geometry.boxWidth[i];
    const inner = cell.kind === "group" ? geometries.get(cell.ref) : undefined;
    if (inner) placeGroup(scene, cell.ref, [x - inner.axis, y], geometries, out);
    else if (cell.kind === "group" || cell.kind === "node") {
      add(cell.kind, cell.ref, x - width / 2, y, width, geometry.boxHeight[i]);
    }
  });
  group.links.forEach((link, number) => {
    const target = group.cells[link.path[link.path.length - 1]];
    const arrow =
      target.kind === "node" || (target.kind === "group" && !geometries.has(target.ref));
    if (isStub(link, geometry))
      out.lines.push(...makeStubs(group, geometry, number, origin, arrow));
    else out.lines.push(makeLine(group, geometry, number, origin, arrow));
  });
}

/**
 * Return a link as a line of vertical and horizontal segments.
 *
 * @param {SceneGroup} group
 * @param {GroupGeometry} geometry
 * @param {number} number
 * @param {Point} origin
 * @param {boolean} arrow
 * @returns {Line}
 */
function makeLine(group, geometry, number, [dx, dy], arrow) {
  const link = group.links[number];
  const { path } = link;
  const source = path[0];
  const last = path.length - 1;
  const target = path[last];
  let x = dx + geometry.sourceX[number];
  let y = dy + geometry.y[source] + (link.reversed ? geometry.boxHeight[source] : 0);
  const start = geometry.sideways[number] ? y + geometry.boxHeight[source] / 2 : y;
  /** @type {Point[]} */
  let points = [[x, y]];
  /** @type {Point} */
  let label = [x, link.reversed ? y + LABEL_RISE : y - LABEL_RISE];
  if (geometry.sideways[number]) {
    const lane = dx + geometry.x[path[1]];
    const middle = y + geometry.boxHeight[source] / 2;
    points = [
      [x - geometry.boxWidth[source] / 2, middle],
      [lane, middle],
    ];
    label = [lane, y - LABEL_RISE];
    x = lane;
  }
  for (let i = 0; i < last; i++) {
    const track = geometry.trackY.get(`${number},${i}`);
    if (track === undefined) continue;
    const to = i === last - 1 ? geometry.targetX[number] : geometry.x[path[i + 1]];
    points.push([x, dy + track], [dx + to, dy + track]);
    x = dx + to;
  }
  y = dy + geometry.y[target] + (link.reversed ? 0 : geometry.boxHeight[target]);
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
 * Return the two ends of a link that is too long to draw.
 *
 * @param {SceneGroup} group
 * @param {GroupGeometry} geometry
 * @param {number} number
 * @param {Point} origin
 * @param {boolean} arrow
 * @returns {Line[]}
 */
function makeStubs(group, geometry, number, [dx, dy], arrow) {
  const link = group.links[number];
  const source = link.path[0];
  const target = link.path[link.path.length - 1];
  const rise = link.reversed ? STUB_LENGTH : -STUB_LENGTH;
  const stub = { group: group.index, link: number, stub: true, label: null };
  const leavingX = dx + geometry.sourceX[number];
  const leavingY = dy + geometry.y[source] + (link.reversed ? geometry.boxHeight[source] : 0);
  const arrivingX = dx + geometry.targetX[number];
  const arrivingY = dy + geometry.y[target] + (link.reversed ? 0 : geometry.boxHeight[target]);
  return [
    {
      ...stub,
      points: [
        [leavingX, leavingY],
        [leavingX, leavingY + rise],
      ],
      start: leavingY,
      end: leavingY + rise,
      arrow: false,
    },
    {
      ...stub,
      points: [
        [arrivingX, arrivingY - rise],
        [arrivingX, arrivingY],
      ],
      start: arrivingY - rise,
      end: arrivingY,
      arrow,
    },
  ];
}
