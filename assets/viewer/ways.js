// @ts-check
/** The columns of one group: its longest way is straight; see `autogradviz/scene/measure.py`. */

import { BEND_WEIGHT, MAIN_WEIGHT, NODE_WEIGHT, setColumns } from "./columns.js";
import { isStub, portShift } from "./sheet.js";

const BENT_WEIGHT = 0.5;

/** @typedef {import("./types.js").SceneGroup} SceneGroup */
/** @typedef {import("./sheet.js").Sheet} Sheet */

/**
 * Set the x of every cell. The longest way through a group has the say: it is straight.
 *
 * @param {SceneGroup} group
 * @param {Sheet} sheet
 * @param {Map<number, Sheet>} sheets
 */
export function placeColumns(group, sheet, sheets) {
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
