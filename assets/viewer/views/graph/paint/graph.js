// @ts-check
/** One picture of the graph. */

import { lifeOfGroup } from "../../../scene/scene_index.js";
import { rowWith } from "../../../payload/decode.js";
import { frameFill, paintClosed, paintFrame } from "./group.js";
import { lineStyle, paintLine, paintViews } from "./edge.js";
import { paintNode, paintNodeBar } from "./node.js";
import { roundRect } from "../../../canvas/text.js";
import { isHeldAt, nodeAt, phaseOf, phaseOfLife } from "../../../scene/replay.js";
import { sameItem } from "../../../store.js";

/** @typedef {import("../../../canvas/text.js").Pen} Pen */
/** @typedef {import("../../../layout/coordinates.js").Box} Box */
/** @typedef {import("../../../store.js").Item} Item */

/** Below this height on screen a box becomes a bar. */
const BAR_BELOW = 8;

/**
 * @typedef {object} Look
 * @property {import("../../../scene/scene_index.js").Atlas} atlas
 * @property {import("../../../layout/coordinates.js").Placement} placement
 * @property {import("../camera.js").Camera} camera
 * @property {Item | null} selected
 * @property {Item | null} hovered lights its neighbours and dims the rest
 * @property {Map<string, {x: number, y: number}>} shifts how far boxes still are from their places
 * @property {number} linesAlpha lines come last while boxes slide
 * @property {import("../../../scene/colors.js").Tints | null} tints what fills say; kinds where null
 * @property {import("../../../store.js").Half} half
 * @property {import("../../../scene/gradient_path.js").Route | null} route
 * @property {number | null} time replayed; null shows how everything ended
 * @property {number} width of the canvas, in screen units
 * @property {number} height
 */

/**
 * @param {Box} box
 * @returns {Item}
 */
export function itemOf(box) {
  return { kind: box.kind === "node" ? "node" : "group", index: box.ref };
}

/**
 * @param {Item} item
 * @returns {string}
 */
export function keyOf(item) {
  return `${item.kind}${item.index}`;
}

/**
 * @param {Pen} pen
 * @param {Look} look
 */
export function paint(pen, look) {
  const { ctx, palette } = pen;
  const { camera, placement } = look;
  ctx.fillStyle = palette.canvas;
  ctx.fillRect(0, 0, look.width, look.height);
  ctx.save();
  ctx.scale(camera.scale, camera.scale);
  ctx.translate(-camera.x, -camera.y);
  const seen = {
    left: camera.x - 400,
    right: camera.x + look.width / camera.scale + 400,
    top: camera.y - 20,
    bottom: camera.y + look.height / camera.scale + 20,
  };
  const lit = litBy(look);
  const boxes = placement.boxes.map((box) => shifted(box, look)).filter((box) => inside(box, seen));
  for (const box of boxes) {
    if (box.kind === "frame") paintFrame(pen, box, look.atlas.scene.groups[box.ref]);
  }
  paintLines(pen, look, seen, lit);
  const chosen = boxes.find((box) => sameItem(itemOf(box), look.selected));
  if (chosen) paintRing(pen, chosen);
  for (const box of boxes) {
    if (box.kind === "frame") continue;
    ctx.globalAlpha = alphaOf(look, box, lit);
    paintBox(pen, look, box);
  }
  ctx.globalAlpha = 1;
  ctx.restore();
}

/**
 * @param {Box} box
 * @param {Look} look
 * @returns {Box}
 */
function shifted(box, look) {
  const shift = look.shifts.size ? look.shifts.get(keyOf(itemOf(box))) : undefined;
  return shift ? { ...box, x: box.x + shift.x, y: box.y + shift.y } : box;
}

/**
 * @param {Box} box
 * @param {{left: number, right: number, top: number, bottom: number}} seen
 * @returns {boolean}
 */
function inside(box, seen) {
  return (
    box.x < seen.right &&
    box.x + box.width > seen.left &&
    box.y < seen.bottom &&
    box.y + box.height > seen.top
  );
}

/**
 * @param {Pen} pen
 * @param {Look} look
 * @param {Box} box
 */
function paintBox(pen, look, box) {
  const { atlas, time } = look;
  const running = time !== null && phaseAt(look, box, time) === "running";
  if (running) paintGlow(pen, box);
  if (box.kind === "group") {
    const group = atlas.scene.groups[box.ref];
    const tint = look.tints?.group(box.ref) ?? null;
    return paintClosed(pen, box, time === null ? group : groupAt(look, box, group, time), tint);
  }
  const node = atlas.scene.nodes[box.ref];
  const shown = time === null ? node : nodeAt(node, time);
  const tint = look.tints?.node(box.ref) ?? null;
  if (box.height * pen.scale < BAR_BELOW) return paintNodeBar(pen, box, shown, tint);
  const chips = atlas.chips[box.ref];
  const held = time === null ? chips : chips.filter((chip) => isHeldAt(chip, time));
  const pennants = atlas.pennants[box.ref];
  const parameters = shown.state === "ran" ? pennants : unfilled(pennants);
  return paintNode(pen, box, shown, {
    chips: held,
    pennants: time === null ? pennants : parameters,
    tint,
    half: look.half,
  });
}

/**
 * Parameters before their node ran: whether they get a gradient is not said yet.
 *
 * @param {import("../../../types.js").Pennant[]} pennants
 * @returns {import("../../../types.js").Pennant[]}
 */
function unfilled(pennants) {
  return pennants.map((pennant) =>
    pennant.grad === "ok" ? rowWith(pennant, { grad: "unknown" }) : pennant,
  );
}

/**
 * @param {Look} look
 * @param {Box} box
 * @param {Set<string> | null} lit
 * @returns {number}
 */
function alphaOf(look, box, lit) {
  if (lit && !lit.has(keyOf(itemOf(box)))) return 0.35;
  return look.time !== null && phaseAt(look, box, look.time) === "later" ? 0.22 : 1;
}

/**
 * @param {Look} look
 * @param {Box} box
 * @param {number} time
 * @returns {import("../../../scene/replay.js").Phase}
 */
function phaseAt({ atlas }, box, time) {
  if (box.kind === "node") return phaseOf(atlas.scene.nodes[box.ref], time);
  return phaseOfLife(lifeOfGroup(atlas, box.ref), time);
}

/**
 * @param {Look} look
 * @param {Box} box
 * @param {import("../../../types.js").SceneGroup} group
 * @param {number} time
 * @returns {import("../../../types.js").SceneGroup}
 */
function groupAt(look, box, group, time) {
  const phase = phaseAt(look, box, time);
  const reached = phase === "running" || phase === "ran";
  const state = reached ? group.state : "not_run";
  return rowWith(group, { state, error: reached ? group.error : false });
}

/**
 * @param {Pen} pen
 * @param {Box} box
 */
function paintGlow({ ctx, palette, scale }, box) {
  const out = Math.max(5, 2 / scale);
  ctx.fillStyle = `${palette.path}66`;
  roundRect(ctx, box.x - out, box.y - out, box.width + 2 * out, box.height + 2 * out, 6 + out);
  ctx.fill();
}

/**
 * @param {Pen} pen
 * @param {Look} look
 * @param {{left: number, right: number, top: number, bottom: number}} seen
 * @param {Set<string> | null} lit
 */
function paintLines(pen, look, seen, lit) {
  const { scene } = look.atlas;
  const { palette } = pen;
  const drawn = [];
  for (const line of look.placement.lines) {
    const { start: from, end: to } = line;
    if (Math.min(from, to) > seen.bottom + 60 || Math.max(from, to) < seen.top - 60) continue;
    const link = scene.groups[line.group].links[line.link];
    const { route } = look;
    const onPath = link.edges.some((e) => (route ? route.edges.has(e) : scene.edges[e].on_path));
    const touches = touchesItem(look, link.edges);
    drawn.push({ line, link, style: lineStyle(pen, onPath, touches), rank: touches ? 2 : +onPath });
  }
  drawn.sort((a, b) => a.rank - b.rank);
  for (const { line, style, rank } of drawn) {
    pen.ctx.globalAlpha = look.linesAlpha * (lit && rank < 2 ? 0.35 : 1);
    paintLine(pen, line, style);
  }
  pen.ctx.globalAlpha = look.linesAlpha;
  for (const { line, link, style, rank } of drawn) {
    const color = rank === 1 ? style.color : palette.text3;
    const background = frameFill(palette, scene.groups[line.group]);
    paintViews(pen, line, link.views, color, background);
  }
  pen.ctx.globalAlpha = 1;
}

/**
 * Whether a link begins or ends at the hovered node, or at the selected one.
 *
 * @param {Look} look
 * @param {number[]} edges
 * @returns {boolean}
 */
function touchesItem(look, edges) {
  const item = look.hovered ?? look.selected;
  if (item?.kind !== "node") return false;
  const all = look.atlas.scene.edges;
  return edges.some((edge) => all[edge].source === item.index || all[edge].target === item.index);
}

/**
 * The hovered node and its neighbours, as far as they are visible themselves.
 *
 * @param {Look} look
 * @returns {Set<string> | null} null where nothing is hovered
 */
function litBy({ hovered, atlas }) {
  if (hovered?.kind !== "node") return null;
  const { index } = hovered;
  const near = [index, ...atlas.users[index], ...atlas.inputs[index]];
  const lit = new Set(near.map((node) => keyOf({ kind: "node", index: node })));
  for (const node of near) {
    for (let g = atlas.scene.nodes[node].group; g > 0; g = atlas.scene.groups[g].parent) {
      if (g !== atlas.scene.nodes[index].group) lit.add(keyOf({ kind: "group", index: g }));
    }
  }
  return lit;
}

/**
 * @param {Pen} pen
 * @param {Box} box
 */
function paintRing(pen, box) {
  const { ctx, palette, scale } = pen;
  ctx.strokeStyle = palette.backward;
  ctx.lineWidth = Math.max(2.2, 1.5 / scale);
  const out = 4;
  roundRect(ctx, box.x - out, box.y - out, box.width + 2 * out, box.height + 2 * out, 9);
  ctx.stroke();
}
