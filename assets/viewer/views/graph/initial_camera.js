// @ts-check
/** The camera with which the graph is displayed first. */

import { visibleFor } from "../../scene/scene_index.js";
import { centered, fitTo, clampTo } from "./camera.js";
import { mainColumnX, findBox, rectOf } from "./hit_test.js";

/** The smallest scale at which text is readable. */
export const READABLE = 0.56;
/** The same for a graph with a victim, which leads the picture. */
export const READABLE_VICTIM = 0.68;
/** The scale used if not even the width of the graph fits at a readable scale. */
const COMFORTABLE = 0.75;

/**
 * Show the entire graph if it is readable; else the failing node, or else the top.
 *
 * @param {import("./graph_canvas.js").GraphCanvas} graph
 * @returns {import("./camera.js").Camera}
 */
export function initialCamera({ placement, store, width, height }) {
  const graph = { x: 0, y: 0, w: placement.width, h: placement.height };
  const whole = fitTo(graph, width, height);
  const victim = store.scene.findings[0]?.nodes[0];
  if (whole.scale >= (victim === undefined ? READABLE : READABLE_VICTIM)) return whole;
  const item = victim === undefined ? null : visibleFor(store.sceneIndex, store.open, victim);
  const box = findBox(placement, item);
  const across = fitTo({ ...graph, h: 1 }, width, height).scale;
  const least = victim === undefined ? READABLE : READABLE_VICTIM;
  const scale = across >= least ? across : COMFORTABLE;
  if (box) return clampTo(graph, centered(rectOf(box), width, height, scale), width, height);
  const camera = centered(graph, width, height, scale);
  if (across < least) camera.x = mainColumnX(placement) - width / 2 / scale;
  if (graph.h * scale > height) camera.y = -12 / scale;
  return clampTo(graph, camera, width, height);
}
