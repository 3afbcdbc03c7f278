// @ts-check
/**
 * The x at which each edge starts and ends; see
 * `autogradviz/scene/layout/group_sizes_and_main_column.py`.
 */

import { isStub, portShift } from "./open_group_geometry.js";

const PORT_STEP = 40;

/** @typedef {import("../types.js").Scene} Scene */
/** @typedef {import("../types.js").SceneGroup} SceneGroup */
/** @typedef {import("../types.js").Link} Link */
/** @typedef {import("./open_group_geometry.js").GroupGeometry} GroupGeometry */
/** @typedef {[other: number, link: number, isSource: boolean]} Endpoint `other` is the x at the next row */

/**
 * Set the x at which each link leaves its source and enters its target.
 *
 * @param {Scene} scene
 * @param {SceneGroup} group
 * @param {GroupGeometry} geometry
 * @param {Map<number, GroupGeometry>} geometries
 */
export function setEndpoints(scene, group, geometry, geometries) {
  /** @type {[below: Map<number, Endpoint[]>, above: Map<number, Endpoint[]>]} by cell */
  const sides = [new Map(), new Map()];
  const add = (
    /** @type {number} */ cell,
    /** @type {boolean} */ top,
    /** @type {Endpoint} */ endpoint,
  ) => {
    const side = sides[top ? 1 : 0];
    const endpoints = side.get(cell) ?? [];
    side.set(cell, endpoints);
    endpoints.push(endpoint);
  };
  group.links.forEach((link, number) => {
    const { path } = link;
    const source = path[0];
    const target = path[path.length - 1];
    const sourceX = geometry.x[source] + portShift(group, source, link.source_port, geometries);
    const targetX = geometry.x[target] + portShift(group, target, link.target_port, geometries);
    geometry.sourceX.push(sourceX);
    geometry.targetX.push(targetX);
    const sideways = leavesSideways(scene, group, link, geometry);
    geometry.sideways.push(sideways);
    if (sideways) return;
    const stub = isStub(link, geometry);
    const bent = path.length > 2;
    const upper = stub ? geometry.width + 1 : bent ? geometry.x[path[1]] : targetX;
    const lower = stub ? geometry.width + 1 : bent ? geometry.x[path[path.length - 2]] : sourceX;
    add(source, !link.reversed, [upper, number, true]);
    add(target, !!link.reversed, [lower, number, false]);
  });
  for (const side of sides) {
    for (const [cell, endpoints] of side) {
      const { kind, ref } = group.cells[cell];
      const solid = kind === "node" && !scene.nodes[ref].compact;
      if (endpoints.length > 1 && (solid || (kind === "group" && !geometries.has(ref)))) {
        spread(geometry, cell, endpoints);
      }
    }
  }
}

/**
 * Spread the endpoints on one side of a box; straight links keep the middle.
 *
 * @param {GroupGeometry} geometry
 * @param {number} cell
 * @param {Endpoint[]} endpoints
 */
function spread(geometry, cell, endpoints) {
  endpoints.sort((a, b) => a[0] - b[0] || a[1] - b[1] || Number(a[2]) - Number(b[2]));
  const middle = geometry.x[cell];
  const lefts = endpoints.filter(([other]) => other < middle - 1);
  const rights = endpoints.filter(([other]) => other > middle + 1);
  const count = Math.max(lefts.length, rights.length, 1);
  const step = Math.min(PORT_STEP, (geometry.boxWidth[cell] / 2 - 8) / count);
  const set = ([, number, isSource] = /** @type {Endpoint} */ ([0, 0, false]), rank = 0) => {
    (isSource ? geometry.sourceX : geometry.targetX)[number] = middle + rank * step;
  };
  lefts.forEach((endpoint, i) => set(endpoint, i - lefts.length));
  rights.forEach((endpoint, i) => set(endpoint, i + 1));
}

/**
 * Return whether a link leaves a compact node sideways, to the lane on its left.
 *
 * @param {Scene} scene
 * @param {SceneGroup} group
 * @param {Link} link
 * @param {GroupGeometry} geometry
 * @returns {boolean}
 */
function leavesSideways(scene, group, link, geometry) {
  const cell = link.path[0];
  const { kind, ref } = group.cells[cell];
  if (kind !== "node" || !scene.nodes[ref].compact || link.reversed || link.path.length < 3) {
    return false;
  }
  const lane = geometry.x[link.path[1]];
  if (lane > geometry.x[cell] - PORT_STEP) return false;
  const row = group.rows[geometry.rowOf[cell]];
  const before = row[row.indexOf(cell) - 1];
  return before === undefined || geometry.x[before] + geometry.right[before] < lane;
}
