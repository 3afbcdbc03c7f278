// @ts-check
/** Boxes that slide to their new places. */

import { itemOf, keyOf } from "./paint/graph.js";
import { motionReduced } from "../../canvas/theme.js";

/** @typedef {import("../../layout/coordinates.js").Placement} Placement */
/** @typedef {import("./camera.js").Camera} Camera */

/**
 * How far from its new place each box was on screen, in world units; without those that stay, and
 * without any where motion is to be reduced.
 *
 * @param {Placement} before
 * @param {Camera} cameraBefore
 * @param {Placement} after
 * @param {Camera} camera
 * @returns {Map<string, {x: number, y: number}>}
 */
export function shiftsBetween(before, cameraBefore, after, camera) {
  const shifts = new Map();
  if (motionReduced()) return shifts;
  const old = new Map(before.boxes.map((box) => [keyOf(itemOf(box)), box]));
  for (const box of after.boxes) {
    const key = keyOf(itemOf(box));
    const was = old.get(key);
    if (!was) continue;
    const x = was.x - cameraBefore.x - (box.x - camera.x);
    const y = was.y - cameraBefore.y - (box.y - camera.y);
    if (x || y) shifts.set(key, { x, y });
  }
  return shifts;
}
