// @ts-check
/** Paints the numbers of the steps from a symptom to its cause on the nodes that show them. */

import { setStroke } from "../../../canvas/shapes.js";
import { write } from "../../../canvas/text_fitted_to_width.js";
import { visibleFor } from "../../../scene/scene_index.js";
import { badgeX } from "./badges.js";
import { extentOf, itemOf, keyOf } from "../boxes_of_items.js";

const RADIUS = 9;

/**
 * @param {import("../../../canvas/text_fitted_to_width.js").Pen} pen
 * @param {import("./graph.js").Look} look
 * @param {import("../../../layout/coordinates.js").Box[]} boxes in view
 */
export function paintStations(pen, look, boxes) {
  const { proven, station, open, sceneIndex } = look;
  const radius = Math.max(RADIUS, 8 / pen.scale);
  /** @type {Map<string, number>} number of discs on each box */
  const counts = new Map();
  // From the last to the first, so that they are read from left to right.
  for (let at = proven.length - 1; at >= 0; at--) {
    const { nodes, time_ns: time } = proven[at];
    if (!nodes.length) continue;
    const key = keyOf(visibleFor(sceneIndex, open, nodes[0]));
    const box = boxes.find((each) => each.kind !== "frame" && keyOf(itemOf(each)) === key);
    if (!box) continue;
    const chip = box.kind === "node" && savedAt(sceneIndex, box.ref, time);
    if (chip) {
      const x = badgeX(box, sceneIndex.savedTensors[box.ref], chip) + chip.width - radius;
      paintStation(pen, `${at + 1}`, x, box.y - 3, radius, at === station);
      continue;
    }
    const count = counts.get(key) ?? 0;
    counts.set(key, count + 1);
    const x = extentOf(sceneIndex.scene, box).left - radius - 4 - count * (2 * radius + 3);
    paintStation(pen, `${at + 1}`, x, box.y + box.height / 2, radius, at === station);
  }
}

/**
 * @param {import("../../../scene/scene_index.js").SceneIndex} sceneIndex
 * @param {number} index of a node
 * @param {number} time before its backward
 * @returns {import("../../../types.js").SavedTensorBadge | undefined} the badge of what it saved then
 */
function savedAt({ scene, savedTensors }, index, time) {
  const { runs_ns: runs, writes } = scene.nodes[index];
  if (time < 0 || writes || (runs.length && runs[0] <= time)) return undefined;
  const drawn = savedTensors[index].filter(({ width }) => width);
  return drawn.find(({ state }) => state === "broken") ?? drawn[0];
}

/**
 * Paint a disc with a number, filled if it is the current one.
 *
 * @param {import("../../../canvas/text_fitted_to_width.js").Pen} pen
 * @param {string} text
 * @param {number} x
 * @param {number} y
 * @param {number} radius
 * @param {boolean} current
 */
export function paintStation(pen, text, x, y, radius, current) {
  const { ctx, palette } = pen;
  ctx.beginPath();
  ctx.arc(x, y, radius, 0, 7);
  ctx.fillStyle = current ? palette.path : palette.surface;
  ctx.fill();
  setStroke(ctx, palette.path, radius / 5);
  ctx.stroke();
  const color = current ? palette.surface : palette.path;
  write(pen, text, x, y, { size: radius * 1.3, weight: 600, color, align: "center" });
}
