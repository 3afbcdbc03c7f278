// @ts-check
/**
 * How large each open group is, and where everything stands in it.
 *
 * `autogradviz/scene/measure.py` does the same sums in the same order.
 */

import { BEND_WEIGHT, MAIN_WEIGHT, NODE_WEIGHT, setColumns } from "./x_positions.js";
import { spreadEnds } from "./endpoints.js";
import { Sheet, isStub, portShift } from "./group_geometry.js";
import { assignTracks } from "./edge_tracks.js";
import { longestWay } from "./longest_path.js";

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
const PADDING = 14;
const PILL_ROOM = 126;

/** @typedef {import("../types.js").Scene} Scene */
/** @typedef {import("../types.js").SceneGroup} SceneGroup */

/**
 * Fill in the sheets of a group and of the open groups in it that have none yet.
 *
 * @param {Scene} scene
 * @param {number} index
 * @param {Set<number>} opened
 * @param {Map<number, Sheet>} sheets
 */
export function measure(scene, index, opened, sheets) {
  const group = scene.groups[index];
  for (const cell of group.cells) {
    if (cell.kind !== "group" || !opened.has(cell.ref) || sheets.has(cell.ref)) continue;
    measure(scene, cell.ref, opened, sheets);
  }
  const sheet = extents(scene, group, sheets);
  sheet.rowOf = group.cells.map(() => 0);
  group.rows.forEach((row, r) => row.forEach((cell) => (sheet.rowOf[cell] = r)));
  placeColumns(group, sheet, sheets);
  frame(group, sheet);
  spreadEnds(scene, group, sheet, sheets);
  placeRows(group, sheet);
  sheets.set(index, sheet);
}

/**
 * A sheet that knows how large every cell is.
 *
 * @param {Scene} scene
 * @param {SceneGroup} group
 * @param {Map<number, Sheet>} sheets
 * @returns {Sheet}
 */
function extents(scene, group, sheets) {
  const sheet = new Sheet();
  for (const cell of group.cells) {
    let [width, height, left, right] = [0, 0, 0, 0];
    const inner = cell.kind === "group" ? sheets.get(cell.ref) : undefined;
    if (cell.kind === "node") {
      const node = scene.nodes[cell.ref];
      width = node.op_width + node.name_width;
      height = node.compact ? COMPACT_HEIGHT : NODE_HEIGHT;
      left = width / 2 + node.left_width + CELL_MARGIN;
      right = width / 2 + node.right_width + CELL_MARGIN;
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
    sheet.boxWidth.push(width);
    sheet.boxHeight.push(height);
    sheet.left.push(left);
    sheet.right.push(right);
  }
  return sheet;
}

/**
 * Set the x of every cell. The longest way through the group is its straight column.
 *
 * @param {SceneGroup} group
 * @param {Sheet} sheet
 * @param {Map<number, Sheet>} sheets
 */
function placeColumns(group, sheet, sheets) {
  const bend = group.cells.map((cell) => cell.kind === "bend");
  /** @type {import("./x_positions.js").Neighbour[][]} */
  const above = bend.map(() => []);
  /** @type {import("./x_positions.js").Neighbour[][]} */
  const below = bend.map(() => []);
  /** @type {number[]} */
  const weights = bend.map((isBend) => (isBend ? BEND_WEIGHT : NODE_WEIGHT));
  const main = longestWay(group);
  for (const cell of main) weights[cell] = MAIN_WEIGHT;
  for (const link of group.links) {
    if (isStub(link, sheet)) continue;
    const last = link.path.length - 1;
    let weight = last === 1 ? 1 : BENT_WEIGHT;
    if (last === 1 && main.has(link.path[0]) && main.has(link.path[1])) weight = MAIN_WEIGHT;
    for (let i = 0; i < last; i++) {
      const a = link.path[i];
      const b = link.path[i + 1];
      let shift = 0;
      if (i === 0) shift -= portShift(group, a, link.source_port, sheets);
      if (i === last - 1) shift += portShift(group, b, link.target_port, sheets);
      (link.reversed ? below : above)[a].push([b, shift, weight]);
      (link.reversed ? above : below)[b].push([a, -shift, weight]);
    }
  }
  sheet.x = bend.map(() => 0);
  const { left, right, x } = sheet;
  setColumns({ rows: group.rows, bend, weight: weights, above, below, left, right, x });
}

/**
 * Move the columns to the right of the group's left side; set its width and axis.
 *
 * @param {SceneGroup} group
 * @param {Sheet} sheet
 */
function frame(group, sheet) {
  const { cells } = group;
  let low = cells.length ? Infinity : 0;
  let high = cells.length ? -Infinity : 0;
  sheet.x.forEach((x, i) => {
    low = Math.min(low, x - sheet.left[i]);
    high = Math.max(high, x + sheet.right[i]);
  });
  if (group.index) {
    low -= PADDING;
    high += PADDING;
    const pill = group.checkpointed ? PILL_ROOM : 0;
    const tops = sheet.x.filter((_, i) => cells[i].kind === "top");
    if (tops.length) {
      low = Math.min(low, Math.min(...tops) - group.header_width);
      high = Math.max(high, Math.max(...tops) + pill);
    }
    high = Math.max(high, low + group.header_width + pill);
  }
  sheet.width = high - low;
  sheet.x = sheet.x.map((x) => x - low);
  const ports = sheet.x.filter((_, i) => cells[i].kind === "top" || cells[i].kind === "bottom");
  ports.sort((a, b) => a - b);
  sheet.axis = ports.length ? ports[Math.floor(ports.length / 2)] : sheet.width / 2;
}

/**
 * Set the y of every cell and of every track, and the group's height.
 *
 * @param {SceneGroup} group
 * @param {Sheet} sheet
 */
function placeRows(group, sheet) {
  const { cells, rows } = group;
  const { steps, labels } = stepsOf(group, sheet);
  sheet.y = cells.map(() => 0);
  const isPort = (/** @type {number[]} */ row) => ["top", "bottom"].includes(cells[row[0]].kind);
  let bottom = 0;
  let header = group.index ? HEADER_HEIGHT : 0;
  rows.forEach((row, r) => {
    if (r) {
      const label = labels[r - 1] ? LABEL_ROOM : 0;
      bottom += placeGap(sheet, steps[r - 1], bottom + header, label);
    }
    if (!isPort(row) || r) {
      bottom += header;
      header = 0;
    }
    const height = Math.max(...row.map((cell) => sheet.boxHeight[cell]));
    for (const cell of row) sheet.y[cell] = bottom + (height - sheet.boxHeight[cell]) / 2;
    bottom += height;
  });
  const endsInPorts = rows.length > 0 && cells[rows[rows.length - 1][0]].kind === "bottom";
  sheet.height = endsInPorts || !group.index ? bottom : bottom + PADDING;
}

/**
 * For each gap the sideways steps through it, and whether labels stand in it.
 *
 * @param {SceneGroup} group
 * @param {Sheet} sheet
 * @returns {{steps: import("./edge_tracks.js").Step[][], labels: boolean[]}}
 */
function stepsOf(group, sheet) {
  /** @type {import("./edge_tracks.js").Step[][]} */
  const steps = group.rows.map(() => []);
  const labels = group.rows.map(() => false);
  const gapOf = (/** @type {number} */ a, /** @type {number} */ b) =>
    Math.min(sheet.rowOf[a], sheet.rowOf[b]);
  group.links.forEach((link, number) => {
    if (isStub(link, sheet)) return;
    const { path } = link;
    const last = path.length - 1;
    if (link.views >= MIN_VIEWS) labels[gapOf(path[0], path[1])] = true;
    for (let i = 0; i < last; i++) {
      if (i === 0 && sheet.beside[number]) continue;
      const a = i === 0 ? sheet.sourceX[number] : sheet.x[path[i]];
      const b = i === last - 1 ? sheet.targetX[number] : sheet.x[path[i + 1]];
      if (Math.abs(a - b) > 0.5) {
        const [upper, lower] = link.reversed ? [a, b] : [b, a];
        steps[gapOf(path[i], path[i + 1])].push([upper, lower, number, i]);
      }
    }
  });
  return { steps, labels };
}

/**
 * Give the steps through a gap their tracks; return the height of the gap.
 *
 * @param {Sheet} sheet
 * @param {import("./edge_tracks.js").Step[]} steps
 * @param {number} top
 * @param {number} label
 * @returns {number}
 */
function placeGap(sheet, steps, top, label) {
  const { tracks, pitch } = assignTracks(steps);
  steps.forEach(([, , number, i], at) => {
    sheet.trackY.set(`${number},${i}`, top + TRACK_TOP + tracks[at] * pitch);
  });
  if (!tracks.length) return label ? LABEL_GAP : ROW_GAP;
  return TRACK_TOP + Math.max(...tracks) * pitch + TRACK_BOTTOM + label;
}
