// @ts-check
/** Paints a broken arrow above each box that reads a detached value from another box. */

import { paintText } from "../../../canvas/text.js";
import { visibleFor } from "../../../scene/scene_index.js";

/**
 * @param {import("../../../canvas/text.js").Pen} pen
 * @param {import("./graph.js").Look} look
 * @param {import("../../../layout/coordinates.js").Box[]} boxes in view
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
  for (const box of boxes) {
    const lines = box.kind !== "frame" && labels.get(`${box.kind} ${box.ref}`);
    if (!lines) continue;
    const x = box.x + box.width - 20;
    const y = box.y - 11;
    ctx.strokeStyle = palette.text2;
    ctx.lineWidth = 1.4;
    ctx.setLineDash([3, 2]);
    ctx.beginPath();
    ctx.moveTo(x, box.y - 1);
    ctx.lineTo(x, y);
    ctx.stroke();
    ctx.setLineDash([]);
    ctx.beginPath();
    for (const side of [-3, 3]) {
      ctx.moveTo(x - side, y - 3);
      ctx.lineTo(x + side, y + 3);
    }
    ctx.stroke();
    paintText(pen, [...lines].join(" · "), x + 8, y, { size: 10, color: palette.text2 });
  }
}
