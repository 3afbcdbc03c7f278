// @ts-check
/** Finds the item at a point of the graph. */

import { HEADER_HEIGHT } from "../../layout/group_sizes_and_inner_positions.js";
import { itemAt } from "../compiled/paint_and_hit_test_region_in_graph.js";
import { itemOf, extentOf } from "./boxes_of_items.js";

/** @typedef {import("../../layout/coordinates.js").Placement} Placement */
/** @typedef {import("../../shared_view_state.js").Item} Item */

/** Width of the part of a group's header that opens and closes it. */
const CHEVRON_WIDTH = 26;

/**
 * @typedef {object} Hit
 * @property {Item} item
 * @property {boolean} chevron whether the chevron of a group was hit
 * @property {number} [part] item in the picture of a compiled region, -1 beside all items
 */

/**
 * Return the item at a point in world coordinates. Of an open group only the header can be hit.
 *
 * @param {import("../../scene/scene_index.js").SceneIndex} sceneIndex
 * @param {Placement} placement
 * @param {number} x
 * @param {number} y
 * @returns {Hit | null}
 */
export function hitAt(sceneIndex, placement, x, y) {
  for (let at = placement.boxes.length - 1; at >= 0; at--) {
    const box = placement.boxes[at];
    const height = box.kind === "frame" ? HEADER_HEIGHT : box.height;
    if (y < box.y || y > box.y + height) continue;
    const node = box.kind === "node" ? sceneIndex.scene.nodes[box.ref] : null;
    const isPicture = node && sceneIndex.scene.groups[node.group].picture_width;
    if (isPicture && x >= box.x && x <= box.x + box.width) {
      return { item: itemOf(box), chevron: false, part: itemAt(sceneIndex.scene, box, x, y) };
    }
    const { left, right } = extentOf(sceneIndex.scene, box);
    if (!isPicture && x >= left && x <= right) {
      return { item: itemOf(box), chevron: box.kind !== "node" && x < box.x + CHEVRON_WIDTH };
    }
  }
  return null;
}
