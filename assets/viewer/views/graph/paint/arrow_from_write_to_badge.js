// @ts-check
/** Paints an arrow from the write that a finding blames to the saved-tensor badge that it broke. */

import { setStroke, tracePath } from "../../../canvas/shapes.js";
import { savedTensorLabel } from "../../../scene/format_numbers_and_names.js";
import { paintText, widthOf } from "../../../canvas/text_fitted_to_width.js";
import { HEADER_HEIGHT } from "../../../layout/group_sizes_and_inner_positions.js";
import { extentOf } from "../boxes_of_items.js";
import { BADGE_GAP, BADGE_HEIGHT, BADGE_TEXT_SIZE, badgeX } from "./badges.js";
import { roleOf } from "./node.js";

/** @typedef {import("../../../layout/coordinates.js").Box} Box */

/** Distance between the badges of the rows and the arrow. */
const LANE = 12;
const TEXT_SIZE = 11;

/**
 * @param {import("../../../canvas/text_fitted_to_width.js").Pen} pen
 * @param {import("./graph.js").Look} look
 * @param {Box[]} boxes in view
 * @param {{left: number, right: number, y: number}[]} written labels of lines
 */
export function paintBlame(pen, look, boxes, written) {
  const { scene, savedTensors } = look.sceneIndex;
  const finding = scene.findings[0];
  const isBroken = (/** @type {{state: string}} */ badge) => badge.state === "broken";
  const victim = boxes.find(
    (box) =>
      box.kind === "node" &&
      finding?.nodes.includes(box.ref) &&
      savedTensors[box.ref].some((badge) => badge.width && isBroken(badge)),
  );
  if (!victim) return;
  // The line may run several times: the write next to the victim.
  const distance = (/** @type {Box} */ box) =>
    1e9 * +(scene.nodes[box.ref].group !== scene.nodes[victim.ref].group) +
    Math.abs(box.y - victim.y);
  const [culprit] = boxes
    .filter((box) => {
      const node = box.kind === "node" && scene.nodes[box.ref];
      return node && node.writes && node.lineno === finding?.culprit_line;
    })
    .sort((a, b) => distance(a) - distance(b));
  if (!culprit || victim === culprit) return;
  if (look.time !== null && scene.nodes[culprit.ref].born_ns > look.time) return;
  const { palette } = pen;
  const badges = savedTensors[victim.ref];
  const badge = badges.filter(isBroken)[0];
  const left = badgeX(victim, badges, badge);
  const badgeY = victim.y + victim.height / 2;
  const y = culprit.y + culprit.height / 2;
  const up = Math.sign(badgeY - y);
  const extents = boxes.filter(({ kind }) => kind !== "frame").map((box) => extentOf(scene, box));
  const rightOf = (/** @type {Box} */ box) => extentOf(scene, box).right;
  const between = boxes.filter(
    (box) => box.kind !== "frame" && (box.y - victim.y) * (box.y - culprit.y) < 0,
  );
  /** @type {[x: number, y: number][]} */
  let points;
  if (!up && culprit.x > left) {
    points = [
      [extentOf(scene, culprit).left - 2, y],
      [left + badge.width + 2, badgeY],
    ];
  } else {
    const start = rightOf(culprit) + 4;
    // In a row with others, the line leaves between the rows.
    const next = extents.filter((each) => each.left > start && each.top < y && each.bottom > y);
    const side = up || -1;
    const exit = next.length ? y + side * (culprit.height / 2 + 5) : y;
    const lane =
      LANE + Math.max(next.length ? start : rightOf(culprit), left, ...between.map(rightOf));
    const tip = badgeY - (up || 1) * (BADGE_HEIGHT / 2 + 2);
    const under = !up || lane < left + badge.width - 6;
    points = [
      [start, y],
      [next.length ? start + 5 : start, y],
    ];
    if (under) {
      const at = up ? lane : left + badge.width / 2;
      points.push([points[1][0], exit], [at, exit], [at, tip]);
    } else if (badges.at(-1) !== badge) {
      // It comes from above or below, not across the badges behind it.
      const [at, gap] = [left + badge.width / 2, tip - side * 5];
      points.push([points[1][0], exit], [lane, exit], [lane, gap], [at, gap], [at, tip]);
    } else {
      const end = left + badge.width + 2;
      const corner = Math.max(lane, end + LANE);
      points.push([points[1][0], exit], [corner, exit], [corner, badgeY], [end, badgeY]);
    }
  }
  paintArrow(pen, points);
  const { slot, version } = savedTensorLabel(badge);
  const { op } = scene.nodes[culprit.ref];
  const edge = look.camera.x + look.width / look.camera.scale - 4;
  const corner = Math.max(...points.map(([x]) => x)) + BADGE_GAP;
  const wide = widthOf(pen, `${op} writes ${slot} ${version}`, TEXT_SIZE, 600);
  // Inside the frames around the write.
  const frames = boxes
    .filter((box) => box.kind === "frame" && box.x < culprit.x && box.y < culprit.y)
    .filter((box) => box.y + box.height > culprit.y && box.x + box.width > culprit.x)
    .map((box) => box.x + box.width);
  const start = Math.min(rightOf(culprit) + 4, Math.min(edge, ...frames) - 8 - wide);
  const middle = (points[0][0] + points[points.length - 1][0] - wide) / 2;
  // Below, above and next to each part of the arrow.
  const around = points.slice(1).flatMap(([x, y], at) => {
    const [middle, high] = [(x + points[at][0]) / 2, (y + points[at][1]) / 2];
    return /** @type {[x: number, y: number][]} */ ([
      ...[21, -21, 13, -13].map((dy) => [middle - wide / 2, high + dy]),
      [middle + 8, high],
      [middle - 8 - wide, high],
    ]);
  });
  /** @type {[x: number, y: number][]} */
  const places = [
    ...(points.length > 2 ? [] : around),
    // In one row, the arrow is above it.
    ...(up ? [] : /** @type {[number, number][]} */ ([[left, badgeY + 21]])),
    [corner, y],
    [corner, (y + badgeY) / 2],
    [Math.max(corner, rightOf(victim) + BADGE_GAP), badgeY],
    [start, y - up * 21],
    [start, y + 21],
    [start, y - 21],
    ...around,
  ];
  const notes = written.map(({ left, right, y: at }) => rectOf(left, at - 6, right, at + 6));
  const signs = boxes.flatMap((box) => {
    if (box.kind === "frame") {
      const { header_width: wide } = scene.groups[box.ref];
      return rectOf(box.x, box.y, box.x + wide, box.y + HEADER_HEIGHT);
    }
    const node = box.kind === "node" ? scene.nodes[box.ref] : null;
    const hasMark = look.sceneIndex.marks.has(`${box.kind} ${box.ref}`);
    if (!hasMark && node?.state !== "failed") return [];
    const right = box.x + box.width;
    const role = node ? roleOf(node) : "";
    const end = right + 9 + (role ? 4 + widthOf(pen, role, BADGE_TEXT_SIZE, 600) : 0);
    return rectOf(right - 9, box.y - 10, end, box.y + 9);
  });
  const segments = (/** @type {[x: number, y: number][]} */ corners) =>
    corners.slice(1).map(([x, y], at) => {
      const [fromX, fromY] = corners[at];
      return rectOf(
        Math.min(x, fromX) - 3,
        Math.min(y, fromY) - 1,
        Math.max(x, fromX) + 3,
        Math.max(y, fromY) + 1,
      );
    });
  // The lines of the path are as strong as the arrow.
  const linesOf = (/** @type {boolean} */ all) =>
    look.placement.lines
      .filter(
        ({ group, link }) =>
          all || scene.groups[group].links[link].edges.some((edge) => scene.edges[edge].on_path),
      )
      .flatMap((line) => segments(line.points));
  const boxed = [...extents, ...notes, ...signs];
  const isFree = (
    /** @type {typeof boxed} */ taken,
    /** @type {number} */ width,
    /** @type {[number, number]} */ [x, middle],
  ) =>
    x + width <= edge &&
    x > look.camera.x &&
    !frames.some((right) => x < right && x + width > right) &&
    taken.every(
      (each) =>
        each.right < x ||
        each.left > x + width ||
        each.bottom < middle - 7 ||
        each.top > middle + 7,
    );
  for (const text of [`${op} writes ${slot} ${version}`, `${op} writes ${slot}`, "written"]) {
    const width = widthOf(pen, text, TEXT_SIZE, 600);
    // On a thin line where there is no other room.
    const place = [
      [...boxed, ...segments(points), ...linesOf(true)],
      [...boxed, ...linesOf(false)],
    ]
      .map((taken) => places.find((each) => isFree(taken, width, each)))
      .find(Boolean);
    if (!place) continue;
    paintText(pen, text, ...place, { size: TEXT_SIZE, weight: 600, color: palette.mutation });
    return;
  }
}

/**
 * @param {number} left
 * @param {number} top
 * @param {number} right
 * @param {number} bottom
 */
const rectOf = (left, top, right, bottom) => ({ left, top, right, bottom });

/**
 * @param {import("../../../canvas/text_fitted_to_width.js").Pen} pen
 * @param {[x: number, y: number][]} points the last one is the tip
 */
function paintArrow({ ctx, palette }, points) {
  const [tip, before] = [points[points.length - 1], points[points.length - 2]];
  const [dx, dy] = [Math.sign(tip[0] - before[0]), Math.sign(tip[1] - before[1])];
  setStroke(ctx, (ctx.fillStyle = palette.mutation), 1.6);
  ctx.beginPath();
  for (const [x, y] of points.slice(0, -1)) ctx.lineTo(x, y);
  ctx.lineTo(tip[0] - 6 * dx, tip[1] - 6 * dy);
  ctx.stroke();
  tracePath(
    ctx,
    tip,
    [tip[0] - 7 * dx - 4 * dy, tip[1] - 7 * dy - 4 * dx],
    [tip[0] - 7 * dx + 4 * dy, tip[1] - 7 * dy + 4 * dx],
  );
  ctx.fill();
}
