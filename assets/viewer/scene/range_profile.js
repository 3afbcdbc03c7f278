// @ts-check
/** Time and released memory of a range of the recording, summed by node, module or line. */

import { formatPlace } from "./format.js";

/** @typedef {"node" | "module" | "line"} Grouping */
/** @typedef {[start: number, end: number]} TimeRange nanoseconds */
/** @typedef {"forward" | "backward" | "accumulate" | "recompute" | "optimizer"} Phase */

/**
 * @typedef {object} ProfileRow
 * @property {string} label
 * @property {Phase} phase
 * @property {Set<string>} modules
 * @property {number} count
 * @property {number} time self time within the range, nanoseconds
 * @property {number} released bytes released within the range
 * @property {number} node index of the first one, -1
 */

/**
 * Profile forward ops, backward nodes, recomputations and optimizer steps.
 *
 * The self time of a node excludes the recomputations that it triggered.
 *
 * @param {import("./scene_index.js").SceneIndex} sceneIndex
 * @param {TimeRange} range
 * @param {Grouping} grouping
 * @returns {ProfileRow[]} the longest first
 */
export function profileRange({ scene, savedTensors }, [start, end], grouping) {
  /** @type {Map<string, ProfileRow>} */
  const rows = new Map();
  const add = (
    /** @type {string} */ label,
    /** @type {Phase} */ phase,
    /** @type {string} */ module,
    /** @type {number} */ time,
    /** @type {number} */ node,
  ) => {
    const key = `${phase}|${label}`;
    let row = rows.get(key);
    if (!row) {
      row = { label, phase, modules: new Set(), count: 0, time: 0, released: 0, node };
      rows.set(key, row);
    }
    row.count += 1;
    row.time += time;
    if (module) row.modules.add(module);
    return row;
  };
  const overlap = (/** @type {number} */ from, /** @type {number} */ to) =>
    Math.max(0, Math.min(to, end) - Math.max(from, start));
  const recomputations = scene.spans.filter((span) => span.kind === "recompute" && !span.depth);
  const recomputeTime = (/** @type {number} */ from, /** @type {number} */ to) =>
    recomputations
      .filter((span) => span.start_ns >= from && span.end_ns <= to)
      .reduce((sum, span) => sum + overlap(span.start_ns, span.end_ns), 0);
  const groupName = (
    /** @type {import("../types.js").SceneNode} */ node,
    /** @type {string} */ name,
  ) =>
    ({
      node: name,
      module: node.module || "no module",
      line: formatPlace(node.filename, node.lineno) || "no line",
    })[grouping];
  for (const node of scene.nodes) {
    const time = overlap(node.born_ns, node.born_ns + node.forward_ns);
    if (node.born_ns >= 0 && time) {
      add(groupName(node, node.op || node.name), "forward", node.module, time, node.index);
    }
  }
  for (const span of scene.spans) {
    const time = overlap(span.start_ns, span.end_ns);
    if (!time) continue;
    if (span.kind === "node") {
      const node = scene.nodes[span.ref];
      const selfTime = time - recomputeTime(span.start_ns, span.end_ns);
      const phase = span.label.endsWith("AccumulateGrad") ? "accumulate" : "backward";
      const label = node ? groupName(node, span.label) : span.label;
      const row = add(label, phase, node?.module ?? "", selfTime, span.ref);
      for (const { released_ns, nbytes } of node ? savedTensors[node.index] : []) {
        if (released_ns >= span.start_ns && released_ns < end) row.released += nbytes;
      }
    } else if (span.kind === "recompute" && !span.depth) {
      add(`${span.label || "region"}, recomputed`, "recompute", span.label, time, -1);
    } else if (span.kind === "optimizer") {
      add("optimizer", "optimizer", "", time, -1);
    }
  }
  return [...rows.values()].sort((a, b) => b.time - a.time);
}

/**
 * Return the bytes that were saved for backward at a time.
 *
 * @param {import("../types.js").Scene} scene
 * @param {number} time
 * @returns {number}
 */
export function savedBytesAt(scene, time) {
  return scene.memory.findLast((point) => point.time_ns <= time)?.nbytes ?? 0;
}
