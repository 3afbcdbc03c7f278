// @ts-check
/** Where on its boxes each link begins and ends; see `autogradviz/scene/measure.py`. */

import { isStub, portShift } from "./group_geometry.js";

const PORT_STEP = 40;

/** @typedef {import("../types.js").Scene} Scene */
/** @typedef {import("../types.js").SceneGroup} SceneGroup */
/** @typedef {import("../types.js").Link} Link */
/** @typedef {import("./group_geometry.js").Sheet} Sheet */
/** @typedef {[other: number, link: number, isSource: boolean]} End */

/**
 * Set where on its boxes each link begins and ends.
 *
 * @param {Scene} scene
 * @param {SceneGroup} group
 * @param {Sheet} sheet
 * @param {Map<number, Sheet>} sheets
 */
export function spreadEnds(scene, group, sheet, sheets) {
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
