// @ts-check
/** Paints the graph: frames, lines, boxes. */

import { fillBox, setStroke } from "../../../canvas/shapes.js";
import { lifetimeOfGroup } from "../../../scene/scene_index.js";
import { rowWith } from "../../../payload/lazy_rows.js";
import { frameFill, paintClosed, paintFrame, paintHeader, paintMapLabels } from "./group.js";
import { paintBlame } from "./arrow_from_write_to_badge.js";
import { paintDetaches, paintModulesWithout } from "./arrow_at_detach.js";
import { paintStations } from "./cause_step_numbers.js";
import { lineStyle, paintLine, paintPulse, paintViews } from "./edge.js";
import { doneAt, onItsWay } from "../../../scene/progress_at_replayed_time.js";
import { paintNode, paintNodeBar } from "./node.js";
import { paintGlyph } from "../../../canvas/draw_icon.js";
import { roundRect } from "../../../canvas/text_fitted_to_width.js";
import {
  isHeldAt,
  nodeAt,
  phaseOf,
  phaseOfLifetime,
} from "../../../scene/state_at_replayed_time.js";
import { sameItem } from "../../../shared_view_state.js";
import { paintRegion } from "../../compiled/paint_and_hit_test_region_in_graph.js";
import { itemOf, keyOf } from "../boxes_of_items.js";

/** @typedef {import("../../../canvas/text_fitted_to_width.js").Pen} Pen */
/** @typedef {import("../../../layout/coordinates.js").Box} Box */
/** @typedef {import("../../../shared_view_state.js").Item} Item */

/** Height in pixels below which a node is painted as a bar without text. */
const MIN_TEXT_HEIGHT = 11;

/**
 * Everything that a picture of the graph depends on.
 *
 * @typedef {object} Look
 * @property {import("../../../scene/scene_index.js").SceneIndex} sceneIndex
 * @property {import("../../../layout/coordinates.js").Placement} placement
 * @property {import("../camera.js").Camera} camera
 * @property {Item | null} selected
 * @property {Item | null} hovered its neighbors are highlighted, the rest is dimmed
 * @property {Set<number> | null} matches nodes that a search found; the rest is dimmed
 * @property {Map<string, {x: number, y: number}>} offsets of boxes during a transition
 * @property {number} linesAlpha lines fade in during a transition
 * @property {import("../../../scene/graph_colorings.js").Coloring | null} coloring
 * @property {import("../../../shared_view_state.js").SavedForm} savedForm
 * @property {import("../../../scene/gradient_path.js").GradientPath | null} gradientPath
 * @property {import("../../../shared_view_state.js").Step[]} proven steps from a symptom to its cause
 * @property {number} station index of the current step of the trail
 * @property {Set<number>} open indices of the open groups
 * @property {number | null} time replayed; null is the end of the recording
 * @property {number} width of the canvas, in pixels
 * @property {number} height
 */

/**
 * @param {Pen} pen
 * @param {Look} look
 */
export function paint(pen, look) {
  const { ctx, palette } = pen;
  const { camera, placement } = look;
  fillBox(ctx, palette.canvas, 0, 0, look.width, look.height);
  ctx.save();
  ctx.scale(camera.scale, camera.scale);
  ctx.translate(-camera.x, -camera.y);
  const seen = {
    left: camera.x - 400,
    right: camera.x + look.width / camera.scale + 400,
    top: camera.y - 20,
    bottom: camera.y + look.height / camera.scale + 20,
  };
  const highlighted = highlightedItems(look);
  const all = placement.boxes.map((box) => offsetBox(box, look));
  const boxes = all.filter((box) => intersects(box, seen));
  for (const box of boxes) {
    if (box.kind === "frame") paintFrame(pen, box, look.sceneIndex.scene.groups[box.ref]);
  }
  const labels = paintLines(pen, look, seen, highlighted);
  paintModulesWithout(pen, look, all);
  const [left, right] = [camera.x, camera.x + look.width / camera.scale];
  for (const box of boxes) {
    if (box.kind !== "frame") continue;
    paintHeader(pen, box, look.sceneIndex.scene.groups[box.ref], left, right);
  }
  const selected = boxes.find((box) => sameItem(itemOf(box), look.selected));
  if (selected) paintSelection(pen, selected);
  for (const box of boxes) {
    if (box.kind === "frame") continue;
    ctx.globalAlpha = alphaOf(look, box, highlighted);
    paintBox(pen, look, box);
    paintMark(pen, look, box);
  }
  ctx.globalAlpha = look.linesAlpha;
  const written = paintViews(pen, labels);
  ctx.globalAlpha = 1;
  paintDetaches(pen, look, boxes);
  paintBlame(pen, look, boxes, written);
  paintStations(pen, look, boxes);
  paintMapLabels(pen, boxes, look.sceneIndex.scene.groups);
  ctx.restore();
}

/**
 * @param {Box} box
 * @param {Look} look
 * @returns {Box}
 */
function offsetBox(box, look) {
  const offset = look.offsets.size ? look.offsets.get(keyOf(itemOf(box))) : undefined;
  return offset ? { ...box, x: box.x + offset.x, y: box.y + offset.y } : box;
}

/**
 * @param {Box} box
 * @param {{left: number, right: number, top: number, bottom: number}} seen
 * @returns {boolean}
 */
function intersects(box, seen) {
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
  const { sceneIndex, time } = look;
  const { saved_nbytes, recomputed_nbytes } = sceneIndex.scene.summary;
  const all = saved_nbytes + recomputed_nbytes;
  const running = time !== null && phaseAt(look, box, time) === "running";
  if (running) paintGlow(pen, box);
  if (box.kind === "group") {
    const group = sceneIndex.scene.groups[box.ref];
    const tint = look.coloring?.group(box.ref) ?? null;
    if (time === null) return paintClosed(pen, box, group, tint, all);
    const done = doneAt(sceneIndex, box.ref, time);
    return paintClosed(pen, box, groupAt(look, box, group, time), tint, all, done);
  }
  const node = sceneIndex.scene.nodes[box.ref];
  if (sceneIndex.scene.groups[node.group].picture_width) {
    return paintRegion(pen, sceneIndex.scene, box, look.savedForm);
  }
  const nodeNow = time === null ? node : nodeAt(node, time);
  const tint = look.coloring?.node(box.ref) ?? null;
  const least = node.compact ? MIN_TEXT_HEIGHT / 2 : MIN_TEXT_HEIGHT;
  if (box.height * pen.scale < least) return paintNodeBar(pen, box, nodeNow, tint);
  const saved = sceneIndex.savedTensors[box.ref];
  const parameters = sceneIndex.parameters[box.ref];
  if (time === null) return paintNode(pen, box, node, { saved, parameters, tint, all });
  return paintNode(pen, box, nodeNow, {
    saved: saved.filter((each) => isHeldAt(each, time)),
    parameters: nodeNow.state === "ran" ? parameters : withoutGradients(parameters),
    tint,
    all,
  });
}

/**
 * Paint the mark of a finding, unless the box is red.
 *
 * @param {Pen} pen
 * @param {Look} look
 * @param {Box} box
 */
function paintMark({ ctx, palette, scale }, { sceneIndex }, { kind, ref, x, y, width }) {
  const { nodes, groups } = sceneIndex.scene;
  const mark = sceneIndex.marks.get(`${kind} ${ref}`);
  const isRed =
    kind === "node" ? nodes[ref].error || nodes[ref].state === "failed" : groups[ref].error;
  if (!mark || isRed) return;
  const size = Math.max(14, 9 / scale);
  paintGlyph(ctx, "found", x + width - 1, y, size, palette[mark], palette.surface);
}

/**
 * Return the parameters of a node that has not run: their gradients are not known yet.
 *
 * @param {import("../../../types.js").ParameterBadge[]} parameters
 * @returns {import("../../../types.js").ParameterBadge[]}
 */
function withoutGradients(parameters) {
  return parameters.map((each) => (each.grad === "ok" ? rowWith(each, { grad: "unknown" }) : each));
}

/**
 * @param {Look} look
 * @param {Box} box
 * @param {Set<string> | null} highlighted
 * @returns {number}
 */
function alphaOf(look, box, highlighted) {
  if (highlighted && !highlighted.has(keyOf(itemOf(box)))) return 0.35;
  return look.time !== null && phaseAt(look, box, look.time) === "future" ? 0.22 : 1;
}

/**
 * @param {Look} look
 * @param {Box} box
 * @param {number} time
 * @returns {import("../../../scene/state_at_replayed_time.js").Phase}
 */
function phaseAt({ sceneIndex }, box, time) {
  if (box.kind === "node") return phaseOf(sceneIndex.scene.nodes[box.ref], time);
  return phaseOfLifetime(lifetimeOfGroup(sceneIndex, box.ref), time);
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
  return rowWith(group, { state, error: reached ? group.error : 0 });
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
 * @param {Set<string> | null} highlighted
 * @returns {Parameters<typeof paintViews>[1]} the labels of the lines
 */
function paintLines(pen, look, seen, highlighted) {
  const { scene } = look.sceneIndex;
  const { palette } = pen;
  const drawn = [];
  for (const line of look.placement.lines) {
    const { start: from, end: to } = line;
    if (Math.min(from, to) > seen.bottom + 60 || Math.max(from, to) < seen.top - 60) continue;
    const link = scene.groups[line.group].links[line.link];
    const { gradientPath } = look;
    const onPath = link.edges.some((e) =>
      gradientPath ? gradientPath.edges.has(e) : scene.edges[e].on_path,
    );
    const touches = touchesItem(look, link.edges);
    const way = look.time === null ? -1 : onItsWay(look.sceneIndex, link.edges, look.time);
    const style = lineStyle(pen, onPath || way >= 0, touches);
    drawn.push({ line, link, style, way, rank: touches ? 2 : +(onPath || way >= 0) });
  }
  drawn.sort((a, b) => a.rank - b.rank);
  for (const { line, style, rank, way } of drawn) {
    pen.ctx.globalAlpha = look.linesAlpha * (highlighted && rank < 2 ? 0.35 : 1);
    paintLine(pen, line, style);
    if (way >= 0) paintPulse(pen, line, way, style.color);
  }
  pen.ctx.globalAlpha = 1;
  // Those of the selection come last on the lines, and first where labels overlap.
  return drawn.reverse().map(({ line, link, style, rank }) => ({
    line,
    views: link.views,
    color: rank === 1 ? style.color : palette.text3,
    background: frameFill(palette, scene.groups[line.group]),
  }));
}

/**
 * Return whether a link starts or ends at the hovered node, or else at the selected node.
 *
 * @param {Look} look
 * @param {number[]} edges
 * @returns {boolean}
 */
function touchesItem(look, edges) {
  const item = look.hovered ?? look.selected;
  if (item?.kind !== "node") return false;
  const all = look.sceneIndex.scene.edges;
  return edges.some((edge) => all[edge].source === item.index || all[edge].target === item.index);
}

/**
 * The hovered node and its neighbors, as far as they are visible themselves.
 *
 * @param {Look} look
 * @returns {Set<string> | null} null if no node is hovered
 */
function highlightedItems({ hovered, sceneIndex, matches }) {
  if (hovered?.kind !== "node") return matches && itemsAround(sceneIndex.scene, matches);
  const { index } = hovered;
  const neighbors = [index, ...sceneIndex.users[index], ...sceneIndex.inputs[index]];
  const highlighted = new Set(neighbors.map((node) => keyOf({ kind: "node", index: node })));
  for (const node of neighbors) {
    for (let g = sceneIndex.scene.nodes[node].group; g > 0; g = sceneIndex.scene.groups[g].parent) {
      if (g !== sceneIndex.scene.nodes[index].group)
        highlighted.add(keyOf({ kind: "group", index: g }));
    }
  }
  return highlighted;
}

/**
 * @param {import("../../../types.js").Scene} scene
 * @param {Set<number>} nodes
 * @returns {Set<string>} the nodes, and the groups that contain them
 */
function itemsAround({ nodes: all, groups }, nodes) {
  const items = new Set([...nodes].map((node) => keyOf({ kind: "node", index: node })));
  for (const node of nodes) {
    for (let g = all[node].group; g > 0; g = groups[g].parent) {
      items.add(keyOf({ kind: "group", index: g }));
    }
  }
  return items;
}

/**
 * @param {Pen} pen
 * @param {Box} box
 */
function paintSelection(pen, box) {
  const { ctx, palette, scale } = pen;
  setStroke(ctx, palette.backward, Math.max(2.2, 1.5 / scale));
  const out = 4;
  roundRect(ctx, box.x - out, box.y - out, box.width + 2 * out, box.height + 2 * out, 9);
  ctx.stroke();
}
