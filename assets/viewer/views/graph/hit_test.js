// @ts-check
/** Finding things on the canvas: under the pointer, and beside the selection. */

import { visibleFor } from "../../scene/scene_index.js";
import { HEADER_HEIGHT } from "../../layout/sizes.js";
import { itemOf } from "./paint/graph.js";
import { sameItem } from "../../store.js";

/** @typedef {import("../../layout/coordinates.js").Box} Box */
/** @typedef {import("../../layout/coordinates.js").Placement} Placement */
/** @typedef {import("../../store.js").Item} Item */
/** @typedef {"up" | "down" | "left" | "right"} Way */

/** The part of a group's header that opens and closes it. */
const CHEVRON = 26;

/**
 * @typedef {object} Hit
 * @property {Item} item
 * @property {boolean} chevron
 */

/**
 * What lies at a point of the world; of an open group only its header can be hit.
 *
 * @param {import("../../scene/scene_index.js").Atlas} atlas
 * @param {Placement} placement
 * @param {number} x
 * @param {number} y
 * @returns {Hit | null}
 */
export function hitAt(atlas, placement, x, y) {
  for (let at = placement.boxes.length - 1; at >= 0; at--) {
    const box = placement.boxes[at];
    const height = box.kind === "frame" ? HEADER_HEIGHT : box.height;
    if (y < box.y || y > box.y + height) continue;
    const node = box.kind === "node" ? atlas.scene.nodes[box.ref] : null;
    const left = box.x - (node?.left_width ?? 0);
    const right = box.x + box.width + (node?.right_width ?? 0);
    if (x >= left && x <= right) {
      return { item: itemOf(box), chevron: box.kind !== "node" && x < box.x + CHEVRON };
    }
  }
  return null;
}

/**
 * @param {Placement} placement
 * @param {Item | null} item
 * @returns {Box | undefined}
 */
export function boxOf(placement, item) {
  return placement.boxes.find((box) => sameItem(itemOf(box), item));
}

/**
 * @param {Box} box
 * @returns {import("./camera.js").Rect}
 */
export function rectOf(box) {
  return { x: box.x, y: box.y, w: box.width, h: box.height };
}

/**
 * The middle of the main column: where the loss stands.
 *
 * @param {Placement} placement
 * @returns {number}
 */
export function axisOf(placement) {
  let lowest = placement.boxes[0];
  for (const box of placement.boxes) if (box.kind !== "frame" && box.y > lowest.y) lowest = box;
  return lowest.x + lowest.width / 2;
}

/**
 * The next item on a way: along an edge where one leads there, else the nearest that way.
 *
 * @param {import("../../scene/scene_index.js").Atlas} atlas
 * @param {Placement} placement
 * @param {Set<number>} open
 * @param {Item | null} from
 * @param {Way} way
 * @returns {Item | null}
 */
export function stepFrom(atlas, placement, open, from, way) {
  const start = boxOf(placement, from);
  if (!start) return firstItem(placement, way);
  if (from?.kind === "node" && (way === "up" || way === "down")) {
    const next = (way === "up" ? atlas.inputs : atlas.users)[from.index];
    const linked = next.map((node) => boxOf(placement, visibleFor(atlas, open, node)));
    const best = nearest(/** @type {Box[]} */ (linked.filter(Boolean)), start, way);
    if (best) return best;
  }
  return nearest(placement.boxes, start, way) ?? from;
}

/**
 * @param {Placement} placement
 * @param {Way} way
 * @returns {Item | null} where a walk begins: at the loss, or at the inputs when going down
 */
function firstItem(placement, way) {
  const sign = way === "down" ? 1 : -1;
  const boxes = placement.boxes.filter((box) => box.kind !== "frame");
  boxes.sort((a, b) => sign * (a.y - b.y));
  return boxes.length ? itemOf(boxes[0]) : null;
}

/**
 * @param {Box[]} boxes
 * @param {Box} start
 * @param {Way} way
 * @returns {Item | null}
 */
function nearest(boxes, start, way) {
  const from = middleOf(start);
  let best = null;
  let least = Infinity;
  for (const box of boxes) {
    const to = middleOf(box);
    const [dx, dy] = [to.x - from.x, to.y - from.y];
    const along = { up: -dy, down: dy, left: -dx, right: dx }[way];
    const aside = Math.abs(way === "up" || way === "down" ? dx : dy);
    if (along < 2 || ((way === "left" || way === "right") && aside > along)) continue;
    const cost = along + aside * 2;
    if (cost < least) [best, least] = [box, cost];
  }
  return best && itemOf(best);
}

/**
 * @param {Box} box
 * @returns {{x: number, y: number}}
 */
function middleOf(box) {
  const height = box.kind === "frame" ? HEADER_HEIGHT : box.height;
  return { x: box.x + box.width / 2, y: box.y + height / 2 };
}
