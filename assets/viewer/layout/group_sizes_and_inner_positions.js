// @ts-check
/**
 * The size of each open group and the positions inside it.
 *
 * `autogradviz/scene/layout/group_sizes_and_main_column.py` does the same arithmetic in the same
 * order.
 */

import { BEND_WEIGHT, MAIN_WEIGHT, NODE_WEIGHT, setXPositions } from "./x_positions.js";
import { setEndpoints } from "./edge_end_positions.js";
import { GroupGeometry, isStub, portShift } from "./open_group_geometry.js";
import { assignTracks } from "./edge_tracks.js";
import { longestPath } from "./main_column.js";

export const NODE_HEIGHT = 24;
const COMPACT_HEIGHT = 18;
const GROUP_HEIGHT = 28;
export const STACK_HEIGHT = 6;
const CELL_MARGIN = 6;
const ROW_GAP = 14;
export const MIN_VIEWS = 2;
const LABEL_GAP = 28;
const BENT_WEIGHT = 0.25;
const TRACK_TOP = 13;
const TRACK_BOTTOM = 6;
const LABEL_ROOM = 14;
export const HEADER_HEIGHT = 30;
const HEADER_GAP = 6;
const PADDING = 14;
const PILL_ROOM = 126;

/** @typedef {import("../types.js").Scene} Scene */
/** @typedef {import("../types.js").SceneGroup} SceneGroup */

/**
 * Add the geometries of a group and of the open groups in it, except those that exist.
 *
 * @param {Scene} scene
 * @param {number} index
 * @param {Set<number>} opened
 * @param {Map<number, GroupGeometry>} geometries
 */
export function measure(scene, index, opened, geometries) {
  const group = scene.groups[index];
  for (const cell of group.cells) {
    if (cell.kind !== "group" || !opened.has(cell.ref) || geometries.has(cell.ref)) continue;
    measure(scene, cell.ref, opened, geometries);
  }
  const geometry = cellSizes(scene, group, geometries);
  geometry.rowOf = group.cells.map(() => 0);
  group.rows.forEach((row, r) => row.forEach((cell) => (geometry.rowOf[cell] = r)));
  setX(group, geometry, geometries);
  fitWidth(group, geometry);
  setEndpoints(scene, group, geometry, geometries);
  setY(group, geometry);
  geometries.set(index, geometry);
}

/**
 * Return a geometry with the size of every cell.
 *
 * @param {Scene} scene
 * @param {SceneGroup} group
 * @param {Map<number, GroupGeometry>} geometries
 * @returns {GroupGeometry}
 */
function cellSizes(scene, group, geometries) {
  const geometry = new GroupGeometry();
  for (const cell of group.cells) {
    let [width, height, left, right] = [0, 0, 0, 0];
    const inner = cell.kind === "group" ? geometries.get(cell.ref) : undefined;
    if (cell.kind === "node") {
      const node = scene.nodes[cell.ref];
      width = node.op_width + node.name_width;
      height = node.compact ? COMPACT_HEIGHT : NODE_HEIGHT;
      left = width / 2 + node.left_width + CELL_MARGIN;
      right = width / 2 + node.right_width + CELL_MARGIN;
      if (group.picture_width) {
        [width, height] = [group.picture_width, group.picture_height];
        left = right = width / 2 + CELL_MARGIN;
      }
    } else if (inner) {
      ({ width, height } = inner);
      left = inner.axis + CELL_MARGIN;
      right = inner.width - inner.axis + CELL_MARGIN;
    } else if (cell.kind === "group") {
      const closed = scene.groups[cell.ref];
      width = closed.width;
      height = GROUP_HEIGHT + (closed.repeat > 1 ? STACK_HEIGHT : 0);
      left = width / 2 + closed.left_width + CELL_MARGIN;
      right = width / 2 + closed.right_width + CELL_MARGIN;
    }
    geometry.boxWidth.push(width);
    geometry.boxHeight.push(height);
    geometry.left.push(left);
    geometry.right.push(right);
  }
  return geometry;
}

/**
 * Set the x of every cell. The longest path through the group becomes a straight column.
 *
 * @param {SceneGroup} group
 * @param {GroupGeometry} geometry
 * @param {Map<number, GroupGeometry>} geometries
 */
function setX(group, geometry, geometries) {
  const isBend = group.cells.map((cell) => cell.kind === "bend");
  /** @type {import("./x_positions.js").Neighbor[][]} */
  const above = isBend.map(() => []);
  /** @type {import("./x_positions.js").Neighbor[][]} */
  const below = isBend.map(() => []);
  /** @type {number[]} */
  const weights = isBend.map((bend) => (bend ? BEND_WEIGHT : NODE_WEIGHT));
  const main = longestPath(group);
  for (const cell of main) weights[cell] = MAIN_WEIGHT;
  for (const link of group.links) {
    if (isStub(link, geometry)) continue;
    const last = link.path.length - 1;
    let weight = last === 1 ? 1 : BENT_WEIGHT;
    if (last === 1 && main.has(link.path[0]) && main.has(link.path[1])) weight = MAIN_WEIGHT;
    for (let i = 0; i < last; i++) {
      const a = link.path[i];
      const b = link.path[i + 1];
      let shift = 0;
      if (i === 0) shift -= portShift(group, a, link.source_port, geometries);
      if (i === last - 1) shift += portShift(group, b, link.target_port, geometries);
      (link.reversed ? below : above)[a].push([b, shift, weight]);
      (link.reversed ? above : below)[b].push([a, -shift, weight]);
    }
  }
  geometry.x = isBend.map(() => 0);
  const { left, right, x } = geometry;
  setXPositions({ rows: group.rows, isBend, weight: weights, above, below, left, right, x });
}

/**
 * Shift all cells so that the group starts at 0; set the group's width and axis.
 *
 * @param {SceneGroup} group
 * @param {GroupGeometry} geometry
 */
function fitWidth(group, geometry) {
  const { cells } = group;
  let low = cells.length ? Infinity : 0;
  let high = cells.length ? -Infinity : 0;
  geometry.x.forEach((x, i) => {
    low = Math.min(low, x - geometry.left[i]);
    high = Math.max(high, x + geometry.right[i]);
  });
  if (group.index) {
    low -= PADDING;
    high += PADDING;
    const pill = group.checkpointed ? PILL_ROOM : 0;
    const tops = geometry.x.filter((_, i) => cells[i].kind === "top");
    if (tops.length) {
      low = Math.min(low, Math.min(...tops) - group.header_width);
      high = Math.max(high, Math.max(...tops) + pill);
    }
    high = Math.max(high, low + group.header_width + pill);
  }
  geometry.width = high - low;
  geometry.x = geometry.x.map((x) => x - low);
  const ports = geometry.x.filter((_, i) => cells[i].kind === "top" || cells[i].kind === "bottom");
  ports.sort((a, b) => a - b);
  geometry.axis = ports.length ? ports[Math.floor(ports.length / 2)] : geometry.width / 2;
}

/**
 * Set the y of every cell and of every track, and the group's height.
 *
 * @param {SceneGroup} group
 * @param {GroupGeometry} geometry
 */
function setY(group, geometry) {
  const { cells, rows } = group;
  const { steps, labels } = stepsInGaps(group, geometry);
  geometry.y = cells.map(() => 0);
  const isPort = (/** @type {number[]} */ row) => ["top", "bottom"].includes(cells[row[0]].kind);
  let bottom = 0;
  let header = group.index ? HEADER_HEIGHT : 0;
  rows.forEach((row, r) => {
    if (r) {
      const label = labels[r - 1] ? LABEL_ROOM : 0;
      bottom += placeGap(geometry, steps[r - 1], bottom + header, label);
    }
    if (!isPort(row) || r) {
      bottom += header + (header && !r ? HEADER_GAP : 0);
      header = 0;
    }
    const height = Math.max(...row.map((cell) => geometry.boxHeight[cell]));
    for (const cell of row) geometry.y[cell] = bottom + (height - geometry.boxHeight[cell]) / 2;
    bottom += height;
  });
  const endsInPorts = rows.length > 0 && cells[rows[rows.length - 1][0]].kind === "bottom";
  geometry.height = endsInPorts || !group.index ? bottom : bottom + PADDING;
}

/**
 * Return for each gap between rows its horizontal steps, and whether it contains labels.
 *
 * @param {SceneGroup} group
 * @param {GroupGeometry} geometry
 * @returns {{steps: import("./edge_tracks.js").Step[][], labels: boolean[]}}
 */
function stepsInGaps(group, geometry) {
  /** @type {import("./edge_tracks.js").Step[][]} */
  const steps = group.rows.map(() => []);
  const labels = group.rows.map(() => false);
  const gapOf = (/** @type {number} */ a, /** @type {number} */ b) =>
    Math.min(geometry.rowOf[a], geometry.rowOf[b]);
  group.links.forEach((link, number) => {
    if (isStub(link, geometry)) return;
    const { path } = link;
    const last = path.length - 1;
    if (link.views >= MIN_VIEWS) labels[gapOf(path[0], path[1])] = true;
    for (let i = 0; i < last; i++) {
      if (i === 0 && geometry.sideways[number]) continue;
      const a = i === 0 ? geometry.sourceX[number] : geometry.x[path[i]];
      const b = i === last - 1 ? geometry.targetX[number] : geometry.x[path[i + 1]];
      if (Math.abs(a - b) > 0.5) {
        const [upper, lower] = link.reversed ? [a, b] : [b, a];
        steps[gapOf(path[i], path[i + 1])].push([upper, lower, number, i]);
      }
    }
  });
  return { steps, labels };
}

/**
 * Assign tracks to the steps in a gap; return the height of the gap.
 *
 * @param {GroupGeometry} geometry
 * @param {import("./edge_tracks.js").Step[]} steps
 * @param {number} top
 * @param {number} label
 * @returns {number}
 */
function placeGap(geometry, steps, top, label) {
  const { tracks, pitch } = assignTracks(steps);
  steps.forEach(([, , number, i], at) => {
    geometry.trackY.set(`${number},${i}`, top + TRACK_TOP + tracks[at] * pitch);
  });
  if (!tracks.length) return label ? LABEL_GAP : ROW_GAP;
  return TRACK_TOP + Math.max(...tracks) * pitch + TRACK_BOTTOM + label;
}
