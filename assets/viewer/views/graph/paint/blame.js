// @ts-check
/** Paints an arrow from the write that a finding blames to the saved-tensor badge that it broke. */

import { savedTensorLabel } from "../../../scene/format.js";
import { paintText, widthOf } from "../../../canvas/text.js";
import { BADGE_GAP, BADGE_HEIGHT, badgeX } from "./badges.js";

/** @typedef {import("../../../layout/coordinates.js").Box} Box */

/** Distance between the badges of the rows and the arrow. */
const LANE = 12;
const TEXT_SIZE = 11;

/**
 * @param {import("../../../canvas/text.js").Pen} pen
 * @param {import("./graph.js").Look} look
 * @param {Box[]} boxes in view
 */
export function paintBlame(pen, look, boxes) {
  const { scene, savedTensors } = look.sceneIndex;
  const finding = scene.findings[0];
  const isBroken = (/** @type {{state: string}} */ badge) => badge.state === "broken";
  const victim = boxes.find(
    (box) =>
      box.kind === "node" &&
      finding?.nodes.includes(box.ref) &&
      savedTensors[box.ref].some((badge) => badge.width && isBroken(badge)),
  );
  const culprit = boxes.find((box) => {
    const node = box.kind === "node" && scene.nodes[box.ref];
    return node && node.writes && node.lineno === finding?.culprit_line;
  });
  if (!victim || !culprit || victim === culprit) return;
  const { ctx, palette } = pen;
  const badges = savedTensors[victim.ref];
  const badge = badges.filter(isBroken)[0];
  const left = badgeX(victim, badges, badge);
  const badgeY = victim.y + victim.height / 2;
  const y = culprit.y + culprit.height / 2;
  const up = Math.sign(badgeY - y);
  const rightOf = (/** @type {Box} */ box) =>
    box.x + box.width + (box.kind === "node" ? scene.nodes[box.ref].right_width : 0);
  const between = boxes.filter(
    (box) => box.kind !== "frame" && (box.y - victim.y) * (box.y - culprit.y) < 0,
  );
  const start = rightOf(culprit) + 4;
  const lane = LANE + Math.max(rightOf(culprit), left, ...between.map(rightOf));
  const under = lane < left + badge.width - 6;
  const end = under
    ? { x: lane, y: badgeY - (up * BADGE_HEIGHT) / 2 - up * 2 }
    : { x: left + badge.width + 2, y: badgeY };
  const corner = under ? lane : Math.max(lane, end.x + LANE);
  ctx.strokeStyle = ctx.fillStyle = palette.mutation;
  ctx.lineWidth = 1.6;
  ctx.beginPath();
  ctx.moveTo(start, y);
  ctx.lineTo(corner, y);
  ctx.lineTo(corner, end.y - (under ? up * 6 : 0));
  if (!under) ctx.lineTo(end.x + 6, end.y);
  ctx.stroke();
  const [dx, dy] = under ? [0, up] : [-1, 0];
  ctx.beginPath();
  ctx.moveTo(end.x, end.y);
  ctx.lineTo(end.x - 7 * dx - 4 * dy, end.y - 7 * dy - 4 * dx);
  ctx.lineTo(end.x - 7 * dx + 4 * dy, end.y - 7 * dy + 4 * dx);
  ctx.fill();
  const { slot, version } = savedTensorLabel(badge);
  const text = `${scene.nodes[culprit.ref].op} writes ${slot} ${version}`;
  const width = widthOf(pen, text, TEXT_SIZE, 600);
  const edge = look.camera.x + look.width / look.camera.scale - 4;
  const below = corner + BADGE_GAP + width > edge;
  const at = below ? Math.min(start, edge - width) : corner + BADGE_GAP;
  const style = { size: TEXT_SIZE, weight: 600, color: palette.mutation };
  paintText(pen, text, at, below ? y - up * 17 : y, style);
}
