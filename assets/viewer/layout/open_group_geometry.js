// @ts-check
/** The geometry of an open group; see `autogradviz/scene/layout/group_sizes_and_main_column.py`. */

/** @typedef {import("../types.js").SceneGroup} SceneGroup */
/** @typedef {import("../types.js").Link} Link */

/** Geometry relative to the group's top left corner. Lists are indexed by cell or by link. */
export class GroupGeometry {
  /** @type {number[]} */ boxWidth = [];
  /** @type {number[]} */ boxHeight = [];
  /** @type {number[]} */ left = [];
  /** @type {number[]} */ right = [];
  /** @type {number[]} the axis */ x = [];
  /** @type {number[]} the top */ y = [];
  /** @type {number[]} */ rowOf = [];
  /** @type {number[]} */ sourceX = [];
  /** @type {number[]} */ targetX = [];
  /** @type {boolean[]} whether the link leaves its source on the left */ sideways = [];
  /** @type {Map<string, number>} by link and step */ trackY = new Map();
  axis = 0;
  width = 0;
  height = 0;
}

/**
 * Return the distance from a cell's axis to the port at which a line enters it.
 *
 * @param {SceneGroup} group
 * @param {number} cell
 * @param {number} port
 * @param {Map<number, GroupGeometry>} geometries
 * @returns {number}
 */
export function portShift(group, cell, port, geometries) {
  const inner = geometries.get(group.cells[cell].ref);
  return port < 0 || !inner ? 0 : inner.x[port] - inner.axis;
}

/**
 * Return whether a link is too long to draw; only its ends are drawn.
 *
 * @param {Link} link
 * @param {GroupGeometry} geometry
 * @returns {boolean}
 */
export function isStub(link, geometry) {
  const rows = geometry.rowOf[link.path[0]] - geometry.rowOf[link.path[link.path.length - 1]];
  return link.path.length === 2 && Math.abs(rows) > 1;
}
