// @ts-check
/** One open group while it is measured; see `autogradviz/scene/measure.py`. */

/** @typedef {import("../types.js").SceneGroup} SceneGroup */
/** @typedef {import("../types.js").Link} Link */

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
 * How far right of a cell's axis a line enters it.
 *
 * @param {SceneGroup} group
 * @param {number} cell
 * @param {number} port
 * @param {Map<number, Sheet>} sheets
 * @returns {number}
 */
export function portShift(group, cell, port, sheets) {
  const inner = sheets.get(group.cells[cell].ref);
  return port < 0 || !inner ? 0 : inner.x[port] - inner.axis;
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
