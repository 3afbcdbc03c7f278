// @ts-check
/**
 * How large each open group is, and where everything stands in it.
 *
 * `autogradviz/scene/measure.py` does the same sums in the same order.
 */

import { BEND_WEIGHT, MAIN_WEIGHT, NODE_WEIGHT, setColumns } from "./columns.js";
import { assignTracks } from "./tracks.js";

export const NODE_HEIGHT = 24;
const COMPACT_HEIGHT = 18;
const GROUP_HEIGHT = 28;
export const STACK_HEIGHT = 6;
const CELL_MARGIN = 6;
const ROW_GAP = 14;
export const MIN_VIEWS = 2;
const LABEL_GAP = 28;
const TRACK_TOP = 13;
const TRACK_BOTTOM = 6;
const LABEL_ROOM = 14;
export const HEADER_HEIGHT = 30;
const PADDING = 14;
const PILL_ROOM = 126;
const PORT_STEP = 40;
const BENT_WEIGHT = 0.5;

/** @typedef {import("./types.js").Scene} Scene */
/** @typedef {import("./types.js").SceneGroup} SceneGroup */
/** @typedef {import("./types.js").Link} Link */

/** One open group, measured from its own top left corner; lists are by cell or by link. */
export class Sheet {
  /** @type {number[]} */ boxWidth = [];
  /** @type {number[]} */ boxHeight = [];
  /** @type {number[]} */ left = [];
  /** @type {number[]} */ right = [];
  /** @type {number[]} the axis */ x = [];
  /** @type {number[]} the top */ y = [];
  /** @type {number[]} */ rowOf = [];
  /** @type {number[]} */ sourceX = [];
  /** @type {number[]} */ targetX = [];
  /** @type {boolean[]} leaves its source on the left */ beside = [];
  /** @type {Map<string, number>} by link and step */ trackY = new Map();
  axis = 0;
  width = 0;
  height = 0;
}

/**
 * Fill in the sheets of a group and of the open groups in it.
 *
 * @param {Scene} scene
 * @param {number} index
 * @param {Set<number>} opened
 * @param {Map<number, Sheet>} sheets
 */
export function measure(scene, index, opened, sheets) {
  const group = scene.groups[index];
  for (const cell of group.cells) {
    if (cell.kind === "group" && opened.has(cell.ref)) measure(scene, cell.ref, opened, sheets);
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
 * How far right of a cell's axis a line enters it.
 *
 * @param {SceneGroup} group
 * @param {number} cell
 * @param {number} port
 * @param {Map<number, Sheet>} sheets
 * @returns {number}
 */
function portShift(group, cell, port, sheets) {
  const inner = sheets.get(group.cells[cell].ref);
  return port < 0 || !inner ? 0 : inner.x[port] - inner.axis;
}

/**
 * Set the x of every cell. The longest way through a group has the say: it is straight.
 *
 * @param {SceneGroup} group
 * @param {Sheet} sheet
 * @param {Map<number, Sheet>} sheets
 */
function placeColumns(group, sheet, sheets) {
  const bend = group.cells.map((cell) => cell.kind === "bend");
  /** @type {import("./columns.js").Neighbour[][]} */
  const above = bend.map(() => []);
  /** @type {import("./columns.js").Neighbour[][]} */
  const below = bend.map(() => []);
  const lengths = wayLengths(group, sheet);
  const longest = lengths.reduce((most, length) => Math.max(most, length), 0);
  const weights = bend.map((isBend, i) => {
    if (isBend) return BEND_WEIGHT;
    return lengths[i] === longest ? MAIN_WEIGHT : NODE_WEIGHT;
  });
  for (const link of group.links) {
    if (isStub(link, sheet)) continue;
    const last = link.path.length - 1;
    const straight = Math.min(lengths[link.path[0]], lengths[link.path[1]]);
    const weight = last === 1 ? straight : BENT_WEIGHT;
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
 * For each cell how many links the longest way through it has, and one more.
 *
 * @param {SceneGroup} group
 * @param {Sheet} sheet
 * @returns {number[]}
 */
function wayLengths(group, sheet) {
  const { rowOf } = sheet;
  const up = group.cells.map(() => 0);
  const down = group.cells.map(() => 0);
  const ends = group.links.map(({ path, reversed }) => {
    const [source, target] = [path[0], path[path.length - 1]];
    return reversed ? [target, source] : [source, target];
  });
  ends.sort((a, b) => rowOf[a[0]] - rowOf[b[0]]);
  for (const [lower, upper] of ends) up[lower] = Math.max(up[lower], up[upper] + 1);
  ends.sort((a, b) => rowOf[b[1]] - rowOf[a[1]]);
  for (const [lower, upper] of ends) down[upper] = Math.max(down[upper], down[lower] + 1);
  return up.map((length, i) => length + down[i] + 1);
}

/**
 * Whether a link is too long to draw: only its ends show.
 *
 * @param {Link} link
 * @param {Sheet} sheet
 * @returns {boolean}
 */
export function isStub(link, sheet) {
  const rows = sheet.rowOf[link.path[0]] - sheet.rowOf[link.path[link.path.length - 1]];
  return link.path.length === 2 && Math.abs(rows) > 1;
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

/** @typedef {[other: number, link: number, isSource: boolean]} End */

/**
 * Set where on its boxes each link begins and ends.
 *
 * @param {Scene} scene
 * @param {SceneGroup} group
 * @param {Sheet} sheet
 * @param {Map<number, Sheet>} sheets
 */
function spreadEnds(scene, group, sheet, sheets) {
  /** @type {[below: Map<number, End[]>, above: Map<number, End[]>]} by cell */
  const sides = [new Map(), new Map()];
  const add = (/** @type {number} */ cell, /** @type {boolean} */ top, /** @type {End} */ end) => {
    const side = sides[top ? 1 : 0];
    const ends = side.get(cell) ?? [];
    side.set(cell, ends);
    ends.push(end);
  };
  group.links.forEach((link, number) => {
    const { path } = link;
    const source = path[0];
    const target = path[path.length - 1];
    const sourceX = sheet.x[source] + portShift(group, source, link.source_port, sheets);
    const targetX = sheet.x[target] + portShift(group, target, link.target_port, sheets);
    sheet.sourceX.push(sourceX);
    sheet.targetX.push(targetX);
    const beside = leavesBeside(scene, group, link, sheet);
    sheet.beside.push(beside);
    if (beside) return;
    const stub = isStub(link, sheet);
    const bent = path.length > 2;
    const upper = stub ? sheet.width + 1 : bent ? sheet.x[path[1]] : targetX;
    const lower = stub ? sheet.width + 1 : bent ? sheet.x[path[path.length - 2]] : sourceX;
    add(source, !link.reversed, [upper, number, true]);
    add(target, !!link.reversed, [lower, number, false]);
  });
  for (const side of sides) {
    for (const [cell, ends] of side) {
      const { kind, ref } = group.cells[cell];
      const solid = kind === "node" && !scene.nodes[ref].compact;
      if (ends.length > 1 && (solid || (kind === "group" && !sheets.has(ref)))) {
        spread(sheet, cell, ends);
      }
    }
  }
}

/**
 * Spread the ends on one side of a box; the straight one keeps the middle.
 *
 * @param {Sheet} sheet
 * @param {number} cell
 * @param {End[]} ends
 */
function spread(sheet, cell, ends) {
  ends.sort((a, b) => a[0] - b[0] || a[1] - b[1] || Number(a[2]) - Number(b[2]));
  const middle = sheet.x[cell];
  const lefts = ends.filter(([other]) => other < middle - 1);
  const rights = ends.filter(([other]) => other > middle + 1);
  const most = Math.max(lefts.length, rights.length, 1);
  const step = Math.min(PORT_STEP, (sheet.boxWidth[cell] / 2 - 8) / most);
  const set = ([, number, isSource] = /** @type {End} */ ([0, 0, false]), rank = 0) => {
    (isSource ? sheet.sourceX : sheet.targetX)[number] = middle + rank * step;
  };
  lefts.forEach((end, i) => set(end, i - lefts.length));
  rights.forEach((end, i) => set(end, i + 1));
}

/**
 * Whether a link leaves a compact node sideways, to the lane on its left.
 *
 * @param {Scene} scene
 * @param {SceneGroup} group
 * @param {Link} link
 * @param {Sheet} sheet
 * @returns {boolean}
 */
function leavesBeside(scene, group, link, sheet) {
  const cell = link.path[0];
  const { kind, ref } = group.cells[cell];
  if (kind !== "node" || !scene.nodes[ref].compact || link.reversed || link.path.length < 3) {
    return false;
  }
  const lane = sheet.x[link.path[1]];
  if (lane > sheet.x[cell] - PORT_STEP) return false;
  const row = group.rows[sheet.rowOf[cell]];
  const before = row[row.indexOf(cell) - 1];
  return before === undefined || sheet.x[before] + sheet.right[before] < lane;
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
 * @returns {{steps: import("./tracks.js").Step[][], labels: boolean[]}}
 */
function stepsOf(group, sheet) {
  /** @type {import("./tracks.js").Step[][]} */
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
 * @param {import("./tracks.js").Step[]} steps
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
