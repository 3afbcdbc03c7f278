// @ts-check
/** Moves the selection through the graph with the arrow keys. */

import { HEADER_HEIGHT } from "../../layout/group_sizes_and_inner_positions.js";
import { visibleFor } from "../../scene/scene_index.js";
import { findBox, itemOf } from "./boxes_of_items.js";

/** @typedef {import("../../layout/coordinates.js").Box} Box */
/** @typedef {import("../../layout/coordinates.js").Placement} Placement */
/** @typedef {import("../../shared_view_state.js").Item} Item */
/** @typedef {"up" | "down" | "left" | "right"} Direction */

/**
 * Return the next item in a direction: along an edge if there is one, else the nearest item.
 *
 * @param {import("../../scene/scene_index.js").SceneIndex} sceneIndex
 * @param {Placement} placement
 * @param {Set<number>} open
 * @param {Item | null} from
 * @param {Direction} direction
 * @returns {Item | null}
 */
export function stepFrom(sceneIndex, placement, open, from, direction) {
  const start = findBox(placement, from);
  if (!start) return firstItem(placement, direction);
  if (from?.kind === "node" && (direction === "up" || direction === "down")) {
    const next = (direction === "up" ? sceneIndex.inputs : sceneIndex.users)[from.index];
    const linked = next.map((node) => findBox(placement, visibleFor(sceneIndex, open, node)));
    const best = nearest(/** @type {Box[]} */ (linked.filter(Boolean)), start, direction);
    if (best) return best;
  }
  return nearest(placement.boxes, start, direction) ?? from;
}

/**
 * @param {Placement} placement
 * @param {Direction} direction
 * @returns {Item | null} the lowest item (the loss), or the highest one when going down
 */
function firstItem(placement, direction) {
  const sign = direction === "down" ? 1 : -1;
  const boxes = placement.boxes.filter((box) => box.kind !== "frame");
  boxes.sort((a, b) => sign * (a.y - b.y));
  return boxes.length ? itemOf(boxes[0]) : null;
}

/**
 * @param {Box[]} boxes
 * @param {Box} start
 * @param {Direction} direction
 * @returns {Item | null}
 */
function nearest(boxes, start, direction) {
  const from = centerOf(start);
  const vertical = direction === "up" || direction === "down";
  let best = null;
  let least = Infinity;
  for (const box of boxes) {
    const to = centerOf(box);
    const [dx, dy] = [to.x - from.x, to.y - from.y];
    const along = { up: -dy, down: dy, left: -dx, right: dx }[direction];
    const across = Math.abs(vertical ? dx : dy);
    if (along < 2 || (!vertical && across > along)) continue;
    const cost = along + across * 2;
    if (cost < least) [best, least] = [box, cost];
  }
  return best && itemOf(best);
}

/**
 * @param {Box} box
 * @returns {{x: number, y: number}} center of the part that can be hit
 */
function centerOf(box) {
  const height = box.kind === "frame" ? HEADER_HEIGHT : box.height;
  return { x: box.x + box.width / 2, y: box.y + height / 2 };
}
