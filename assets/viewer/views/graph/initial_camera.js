// @ts-check
/** Where the graph opens. */

import { visibleFor } from "../../scene/scene_index.js";
import { centred, fitTo, keptOn } from "./camera.js";
import { axisOf, boxOf, rectOf } from "./hit_test.js";

/** Opening on a smaller scale would show words that nobody can read. */
export const READABLE = 0.6;
/** The scale to open on instead, where not even the width would fit. */
const COMFORTABLE = 0.75;

/**
 * On what fails; else on everything, or on the top where that would be too small.
 *
 * @param {import("./graph_canvas.js").Graph} graph
 * @returns {import("./camera.js").Camera}
 */
export function firstCamera({ placement, store, width, height }) {
  const all = { x: 0, y: 0, w: placement.width, h: placement.height };
  const whole = fitTo(all, width, height);
  if (whole.scale >= READABLE) return whole;
  const victim = store.scene.findings[0]?.nodes[0];
  const item = victim === undefined ? null : visibleFor(store.atlas, store.open, victim);
  const box = boxOf(placement, item);
  const across = fitTo({ ...all, h: 1 }, width, height).scale;
  const scale = across >= READABLE ? across : COMFORTABLE;
  if (box) return keptOn(all, centred(rectOf(box), width, height, scale), width, height);
  const camera = centred(all, width, height, scale);
  camera.x = axisOf(placement) - width / 2 / scale;
  if (all.h * scale > height) camera.y = -24 / scale;
  return keptOn(all, camera, width, height);
}
