// @ts-check
/** The offsets of boxes while the graph moves from one layout to another. */

import { itemOf, keyOf } from "./boxes_of_items.js";
import { prefersReducedMotion } from "../../canvas/theme.js";

/** @typedef {import("../../layout/coordinates.js").Placement} Placement */
/** @typedef {import("./camera.js").Camera} Camera */

/**
 * Return the distance of each box from its new position, in world units. Boxes that do not move are left
 * out; with reduced motion, all are.
 *
 * @param {Placement} before
 * @param {Camera} cameraBefore
 * @param {Placement} after
 * @param {Camera} camera
 * @returns {Map<string, {x: number, y: number}>}
 */
export function boxOffsets(before, cameraBefore, after, camera) {
  const offsets = new Map();
  if (prefersReducedMotion()) return offsets;
  const old = new Map(before.boxes.map((box) => [keyOf(itemOf(box)), box]));
  for (const box of after.boxes) {
    const key = keyOf(itemOf(box));
    const previous = old.get(key);
    if (!previous) continue;
    const x = previous.x - cameraBefore.x - (box.x - camera.x);
    const y = previous.y - cameraBefore.y - (box.y - camera.y);
    if (x || y) offsets.set(key, { x, y });
  }
  return offsets;
}
