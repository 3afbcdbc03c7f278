// @ts-check
/** Saved memory over time in layers: by kind of saved tensor, module or source line. */

import { heldCurve, heldIn } from "./curve_of_bytes_held.js";
import { kindOfStorage } from "./saved_kind_colors.js";
import { blockPrefix, plural, placeOf } from "./format_numbers_and_names.js";
import { peakIn } from "./storage_holds.js";

/** @typedef {import("../types.js").SceneCountedStorage} CountedStorage */
/** @typedef {import("../types.js").Scene} Scene */
/** @typedef {"module" | "kind" | "line" | "all memory"} Grouping */
/** @typedef {{label: string, values: number[], peak: number, first: number}} Layer */

const MAX_LAYERS = 9;
/** Maximum number of parts of a recording, each with its highest and its lowest point. */
const MAX_PARTS = 600;

/** @type {Record<Grouping, (storage: CountedStorage, scene: Scene) => string>} */
export const GROUPINGS = {
  module: (storage) => blockPrefix(storage.module) || "no module",
  kind: ({ storage_id }, scene) => kindOfStorage(scene, storage_id),
  line: (storage) => placeOf(storage) || "no line",
  "all memory": () => "",
};

/**
 * Return the times at which the saved memory changes. Of many, the highest and the lowest points
 * are kept in each part of the recording, and the peaks of the recording and of its steps.
 *
 * @param {{scene: Scene, sceneIndex: {end: number}}} store
 * @returns {number[]}
 */
export function changeTimes({ scene, sceneIndex: { end } }) {
  const ranges = [{ start_ns: 0, end_ns: end }, ...scene.steps];
  const kept = new Set([0, end, ...ranges.map((range) => peakIn(scene, range).time)]);
  const curve = heldCurve(scene.counted_storages);
  const times = [...new Set(curve.times)];
  const size = Math.ceil(times.length / MAX_PARTS);
  for (let at = 0; at < times.length; at += size) {
    const part = times.slice(at, at + size).sort((a, b) => heldIn(curve, a) - heldIn(curve, b));
    kept.add(part[0]).add(part[part.length - 1]);
  }
  return [...kept].sort((a, b) => a - b);
}

/**
 * @param {import("../shared_view_state.js").Store} store
 * @param {number[]} times
 * @param {Grouping} grouping
 * @returns {Layer[]} from the bottom, the earliest first; the smallest ones are merged
 */
export function stackLayers({ scene }, times, grouping) {
  /** @type {Map<string, Layer>} */
  const layers = new Map();
  for (const storage of scene.counted_storages) {
    const label = GROUPINGS[grouping](storage, scene);
    let layer = layers.get(label);
    if (!layer) {
      layer = { label, values: times.map(() => 0), peak: 0, first: storage.holds[0] ?? Infinity };
      layers.set(label, layer);
    }
    for (let at = 0; at < storage.holds.length; at += 2) {
      const [start, end] = [storage.holds[at], storage.holds[at + 1]];
      // First the changes, which are added up below.
      const from = firstAtOrAfter(times, start);
      const to = end < 0 ? times.length : firstAtOrAfter(times, end);
      if (from >= to) continue;
      layer.values[from] += storage.nbytes;
      if (to < times.length) layer.values[to] -= storage.nbytes;
    }
  }
  for (const { values } of layers.values()) {
    for (let at = 1; at < values.length; at++) values[at] += values[at - 1];
  }
  for (const layer of layers.values()) layer.peak = Math.max(...layer.values);
  const sorted = [...layers.values()].filter((l) => l.peak).sort((a, b) => b.peak - a.peak);
  const kept = sorted.slice(0, sorted.length > MAX_LAYERS ? MAX_LAYERS - 1 : MAX_LAYERS);
  const rest = sorted.slice(kept.length);
  kept.sort((a, b) => a.first - b.first);
  if (rest.length) {
    const values = times.map((_, at) => rest.reduce((sum, l) => sum + l.values[at], 0));
    const label = `${rest.length} others`;
    kept.push({ label, values, peak: Math.max(...values), first: Infinity });
  }
  const { older_nbytes: older, older_steps } = scene.summary;
  if (older) {
    const label = `${plural(older_steps, "step")} no longer shown`;
    kept.unshift({ label, values: times.map(() => older), peak: older, first: -1 });
  }
  return kept;
}

/**
 * @param {number[]} sorted
 * @param {number} value
 * @returns {number}
 */
function firstAtOrAfter(sorted, value) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
