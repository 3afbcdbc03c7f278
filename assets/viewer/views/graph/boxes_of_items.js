// @ts-check
/** The item of a box and the box of an item; rectangles around boxes and rows of them. */

import { sameItem } from "../../shared_view_state.js";

/** @typedef {import("../../layout/coordinates.js").Box} Box */
/** @typedef {import("../../layout/coordinates.js").Placement} Placement */
/** @typedef {import("../../shared_view_state.js").Item} Item */

/** Room for the frames around rows. */
const ROWS_MARGIN = 20;

/**
 * @param {Box} box
 * @returns {Item}
 */
export function itemOf(box) {
  return { kind: box.kind === "node" ? "node" : "group", index: box.ref };
}

/**
 * @param {Item} item
 * @returns {string} a key for maps
 */
export function keyOf(item) {
  return `${item.kind}${item.index}`;
}

/**
 * @param {Placement} placement
 * @param {Item | null} item
 * @returns {Box | undefined}
 */
export function findBox(placement, item) {
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
 * @param {import("../../types.js").Scene} scene
 * @param {Box} box
 * @returns {{left: number, right: number, top: number, bottom: number}} with its badges
 */
export function extentOf(scene, { kind, ref, x, y, width, height }) {
  const { left_width: before, right_width: after } =
    kind === "node" ? scene.nodes[ref] : { left_width: 0, right_width: 0 };
  return { left: x - before, right: x + width + after, top: y, bottom: y + height };
}

/**
 * Return the rectangle around the rows that are near a box.
 *
 * @param {import("../../types.js").Scene} scene
 * @param {Placement} placement
 * @param {Box} box
 * @param {number} height of the rows
 * @param {(box: Box) => unknown} [isShown] which of their boxes are meant
 * @returns {import("./camera.js").Rect} as high as the box
 */
export function rowsNear(scene, placement, box, height, isShown = () => true) {
  const near = placement.boxes.filter(
    (each) => each.kind !== "frame" && Math.abs(each.y - box.y) < height / 2 && isShown(each),
  );
  const extents = near.map((each) => extentOf(scene, each));
  const x = Math.min(...extents.map(({ left }) => left)) - ROWS_MARGIN;
  const w = Math.max(...extents.map(({ right }) => right)) + ROWS_MARGIN - x;
  return { x, y: box.y, w, h: box.height };
}

/**
 * Return the x of the main column, where the loss is.
 *
 * @param {Placement} placement
 * @returns {number}
 */
export function mainColumnX(placement) {
  let lowest = placement.boxes[0];
  for (const box of placement.boxes) if (box.kind !== "frame" && box.y > lowest.y) lowest = box;
  return lowest.x + lowest.width / 2;
}
