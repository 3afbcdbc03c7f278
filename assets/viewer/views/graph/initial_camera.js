// @ts-check
/** The camera with which the graph is displayed first. */

import { visibleFor } from "../../scene/scene_index.js";
import { centered, fitTo, clampTo } from "./camera.js";
import { graphRect } from "./paint/arrow_at_detach.js";
import { marksAt } from "../compiled/paint_and_hit_test_region_in_graph.js";
import { extentOf, findBox, mainColumnX, rectOf, rowsNear } from "./boxes_of_items.js";
import { stoppedNode } from "../../scene/state_at_replayed_time.js";

/** The smallest scale at which text is readable. */
export const READABLE = 0.56;
/** The same where a larger picture is only a little wider than the view, which it then fills. */
const READABLE_WHOLE = 0.51;
/** The same for a graph with a victim, which leads the picture. */
export const READABLE_VICTIM = 0.68;
/** The same for a graph with the picture of a compiled region, whose text is smaller. */
const READABLE_REGION = 0.72;
/** Scale at which nothing needs to be left out, or at which a picture that is too high is scrolled. */
export const SCROLLED = 0.85;
/** The width of "stopped here" next to a node. */
const ROLE_WIDTH = 90;
/** The scale used if not even the width of the graph fits at a readable scale. */
export const COMFORTABLE = 0.75;

/**
 * Show the entire graph if it is readable; else the failing node, or else the top.
 *
 * @param {import("./graph_canvas.js").GraphCanvas
 *   | import("./graph_around_finding.js").GraphAroundFinding} canvas
 * @returns {import("./camera.js").Camera}
 */
export function initialCamera(canvas) {
  const { placement, sceneIndex, store, width, height } = canvas;
  const graph = graphRect(canvas);
  const whole = fitTo(graph, width, height);
  const victim = "focus" in canvas ? canvas.focus : store.scene.findings[0]?.nodes[0];
  const hasRegions = store.scene.compiled_pictures.length > 0;
  const region = placement.boxes.find(
    ({ kind, ref }) => hasRegions && kind === "node" && marksAt(store.scene, ref).length,
  );
  const readable = region ? READABLE_REGION : victim === undefined ? READABLE : READABLE_VICTIM;
  if (whole.scale >= readable) return whole;
  const { open } = "focus" in canvas ? canvas : store;
  const item = victim === undefined ? null : visibleFor(store.sceneIndex, open, victim);
  const box = findBox(placement, item);
  const stopped = stoppedNode(store.scene);
  const end = stopped < 0 ? null : findBox(placement, visibleFor(store.sceneIndex, open, stopped));
  if (box && end && end !== box) {
    // From the victim to where backward stopped, if text is readable then.
    const parts = [box, end].map((each) => extentOf(sceneIndex.scene, each));
    const x = Math.min(...parts.map(({ left }) => left));
    const y = Math.min(box.y, end.y);
    const right = Math.max(...parts.map((each) => each.right), end.x + end.width + ROLE_WIDTH);
    const h = Math.max(box.y, end.y) + 2 * end.height - y;
    const { scale } = fitTo({ x, y, w: right - x, h }, width, height);
    if (scale >= READABLE) {
      const camera = centered({ x, y, w: right - x, h }, width, height, Math.min(SCROLLED, scale));
      return clampTo(graph, camera, width, height);
    }
  }
  if (box) {
    // The rows around the victim, or else the victim and the write that broke it.
    const { nodes } = sceneIndex.scene;
    const near = (/** @type {boolean} */ all) =>
      rowsNear(
        sceneIndex.scene,
        placement,
        box,
        height / COMFORTABLE,
        (each) => all || each === box || (each.kind === "node" && nodes[each.ref].writes),
      );
    const scaleOf = (/** @type {number} */ w) =>
      Math.min(SCROLLED, fitTo({ x: 0, y: 0, w, h: 1 }, width, height).scale);
    const rows = [true, false].map(near).find(({ w }) => scaleOf(w) >= READABLE);
    // The whole width, unless text is then too small to read.
    const across = scaleOf(graph.w);
    const filled = Math.max(across, Math.min(READABLE, (width - 6) / graph.w));
    // The rows lead the picture, if they are larger then.
    const isLarger = rows && scaleOf(rows.w) >= READABLE_VICTIM;
    const isWhole = isLarger ? across >= READABLE : filled >= READABLE_WHOLE;
    const scale = isWhole ? filled : rows ? scaleOf(rows.w) : COMFORTABLE;
    const camera = centered(rows ?? rectOf(box), width, height, scale);
    // What fits is in the middle.
    const middle = centered(graph, width, height, scale);
    if (graph.h * scale <= height) camera.y = middle.y;
    if (graph.w * scale <= width) camera.x = middle.x;
    return clampTo(graph, camera, width, height);
  }
  const across = fitTo({ ...graph, h: 1 }, width, height).scale;
  const fits = across >= (region ? READABLE_REGION : READABLE);
  const scale = fits ? across : COMFORTABLE;
  const camera = centered(graph, width, height, scale);
  // What is too wide begins where it is read first: a region on its left, or the main column.
  if (!fits) camera.x = region ? region.x - 12 : mainColumnX(placement) - width / 2 / scale;
  if (graph.h * scale > height) camera.y = -12 / scale;
  return clampTo(graph, camera, width, height);
}
