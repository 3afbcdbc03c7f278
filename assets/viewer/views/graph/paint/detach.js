// @ts-check
/**
 * Paints a broken arrow above each box that reads a detached value from another box, or above the
 * frame whose header would be under it.
 */

import { paintText, widthOf } from "../../../canvas/text.js";
import { HEADER_HEIGHT } from "../../../layout/measure_groups.js";
import { visibleFor } from "../../../scene/scene_index.js";

/** @typedef {import("../../../canvas/text.js").Pen} Pen */
/** @typedef {import("../../../layout/coordinates.js").Box} Box */

const SIZE = 10;

/**
 * @param {Pen} pen
 * @param {import("./graph.js").Look} look
 * @param {Box[]} boxes in view
 */
export function paintDetaches(pen, look, boxes) {
  const { ctx, palette } = pen;
  const { scene } = look.sceneIndex;
  if (!scene.detaches.length) return;
  const keyOf = (/** @type {number} */ node) => {
    const { kind, index } = visibleFor(look.sceneIndex, look.open, node);
    return `${kind} ${index}`;
  };
  /** @type {Map<string, Set<string>>} */
  const labels = new Map();
  for (const { reader, producer, lineno } of scene.detaches) {
    const key = keyOf(reader);
    if (producer >= 0 && key === keyOf(producer)) continue;
    labels.set(key, (labels.get(key) ?? new Set()).add(`detach, line ${lineno}`));
  }
  ctx.strokeStyle = palette.text2;
  ctx.lineWidth = 1.4;
  const edge = look.camera.x + look.width / look.camera.scale;
  for (const box of boxes) {
    const lines = box.kind !== "frame" && labels.get(`${box.kind} ${box.ref}`);
    if (!lines) continue;
    const text = [...lines].join(" · ");
    const width = widthOf(pen, text, SIZE) + 8;
    /** @type {Box | undefined} */
    let above = box;
    let [x, y, left] = [0, 0, 0];
    for (let at = above; above; above = boxes.find((each) => hasHeader(each, at, left, width, y))) {
      at = above;
      [x, y] = [at.x + at.width - 20, at.y - 11];
      left = at === box && x + width < edge ? x : x - width;
    }
    ctx.setLineDash([3, 2]);
    ctx.beginPath();
    ctx.moveTo(x, y + 10);
    ctx.lineTo(x, y);
    ctx.stroke();
    ctx.setLineDash([]);
    ctx.beginPath();
    for (const side of [-3, 3]) {
      ctx.moveTo(x - side, y - 3);
      ctx.lineTo(x + side, y + 3);
    }
    ctx.stroke();
    paintText(pen, text, left === x ? x + 8 : left, y, { size: SIZE, color: palette.text2 });
  }
}

/**
 * @param {Box} each
 * @param {Box} box
 * @param {number} left
 * @param {number} width
 * @param {number} y of a label above the box
 * @returns {boolean} whether the label is on the header of a frame around the box
 */
function hasHeader({ kind, ...frame }, box, left, width, y) {
  return (
    kind === "frame" &&
    frame.y < box.y &&
    frame.x < left + width &&
    frame.x + frame.width > left &&
    y - 6 < frame.y + HEADER_HEIGHT - 6 &&
    y + 6 > frame.y
  );
}
