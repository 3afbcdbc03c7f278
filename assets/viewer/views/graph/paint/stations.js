// @ts-check
/** Paints the numbers of the steps from a symptom to its cause on the nodes that show them. */

import { write } from "../../../canvas/text.js";
import { visibleFor } from "../../../scene/scene_index.js";
import { extentOf, itemOf, keyOf } from "../hit_test.js";

const RADIUS = 9;

/**
 * @param {import("../../../canvas/text.js").Pen} pen
 * @param {import("./graph.js").Look} look
 * @param {import("../../../layout/coordinates.js").Box[]} boxes in view
 */
export function paintStations(pen, look, boxes) {
  const { proven, station, open, sceneIndex } = look;
  /** @type {Map<string, number>} number of discs on each box */
  const counts = new Map();
  proven.forEach(({ nodes }, at) => {
    if (!nodes.length) return;
    const key = keyOf(visibleFor(sceneIndex, open, nodes[0]));
    const box = boxes.find((each) => each.kind !== "frame" && keyOf(itemOf(each)) === key);
    if (!box) return;
    const count = counts.get(key) ?? 0;
    counts.set(key, count + 1);
    const radius = Math.max(RADIUS, 8 / pen.scale);
    const x = extentOf(sceneIndex.scene, box).left - radius - 4 - count * (2 * radius + 3);
    paintStation(pen, `${at + 1}`, x, box.y + box.height / 2, radius, at === station);
  });
}

/**
 * Paint a disc with a number, filled if it is the current one.
 *
 * @param {import("../../../canvas/text.js").Pen} pen
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
  ctx.strokeStyle = palette.path;
  ctx.lineWidth = radius / 5;
  ctx.stroke();
  const color = current ? palette.surface : palette.path;
  write(pen, text, x, y, { size: radius * 1.3, weight: 600, color, align: "center" });
}
