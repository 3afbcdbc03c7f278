// @ts-check
/** Time and released memory of a range of the recording, summed by node, module or line. */

import { releasedIn } from "./saved_bytes.js";
import { formatPlace } from "./format.js";
import { compileTimes, idleTimes, overlapOf } from "./time_axis.js";

/** @typedef {"node" | "module" | "line"} Grouping */
/** @typedef {[start: number, end: number]} TimeRange nanoseconds */
/** @typedef {"forward" | "compile" | "backward" | "accumulate" | "recompute" | "optimizer"} Phase */

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
 * Return the time of the recomputations that a node triggered: it is no time of its own.
 *
 * @param {import("../types.js").Scene} scene
 * @param {import("../types.js").SceneNode} node
 * @returns {number} nanoseconds
 */
export function recomputedByNode({ spans }, { runs_ns: runs }) {
  let sum = 0;
  for (const { kind, depth, start_ns, end_ns } of spans) {
    if (kind !== "recompute" || depth) continue;
    const isInside = runs.some(
      (from, at) => !(at % 2) && from <= start_ns && end_ns <= runs[at + 1],
    );
    if (isInside) sum += end_ns - start_ns;
  }
  return sum;
}

/**
 * Profile forward ops, compilations, backward nodes, recomputations and optimizer steps.
 *
 * The self time of a node excludes the recomputations and compilations that it triggered. A node
 * that failed has no end; idle time after its start is not its time.
 *
 * @param {import("./scene_index.js").SceneIndex} sceneIndex
 * @param {TimeRange} range
 * @param {Grouping} grouping
 * @returns {ProfileRow[]} the longest first
 */
export function profileRange({ scene, end: last }, [start, end], grouping) {
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
  const inRange = (
    /** @type {import("./time_axis.js").Intervals} */ intervals,
    /** @type {number} */ from,
    /** @type {number} */ to,
  ) => overlapOf(intervals, Math.max(from, start), Math.min(to, end));
  const compiles = compileTimes(scene);
  const compileTime = (/** @type {number} */ from, /** @type {number} */ to) =>
    inRange(compiles, from, to);
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
  // The runs of drawn nodes are complete; of their spans, the shortest may be left out.
  for (const node of scene.nodes) {
    const runs = node.runs_ns;
    for (let at = 0; at < runs.length; at += 2) {
      const until = runs[at + 1] < 0 ? last : runs[at + 1];
      const time = overlap(runs[at], until);
      if (!time) continue;
      const idle = runs[at + 1] < 0 ? inRange(idleTimes(scene), runs[at], until) : 0;
      const selfTime = time - recomputeTime(runs[at], until) - compileTime(runs[at], until) - idle;
      add(groupName(node, node.name), "backward", node.module, selfTime, node.index);
    }
  }
  for (const span of scene.spans) {
    const time = overlap(span.start_ns, span.end_ns);
    if (!time) continue;
    if (span.kind === "node") {
      if (span.ref >= 0) continue;
      const phase = span.label.endsWith("AccumulateGrad") ? "accumulate" : "backward";
      const inner =
        recomputeTime(span.start_ns, span.end_ns) + compileTime(span.start_ns, span.end_ns);
      add(span.label, phase, "", time - inner, -1);
    } else if (span.kind === "recompute" && !span.depth) {
      add(`${span.label || "region"}, recomputed`, "recompute", span.label, time, -1);
    } else if (span.kind === "optimizer") {
      const inner = compileTime(span.start_ns, span.end_ns);
      add("optimizer", "optimizer", "", time - inner, -1);
    } else if (span.kind === "compile" && !span.depth) {
      add(span.label, "compile", "", time, -1);
    }
  }
  for (const { node: index, nbytes } of releasedIn(scene, [start, end])) {
    const node = scene.nodes[index];
    const label = node ? groupName(node, node.name) : "other";
    const row =
      rows.get(`backward|${label}`) ?? add(label, "backward", node?.module ?? "", 0, index);
    row.released += nbytes;
  }
  return [...rows.values()].sort((a, b) => b.time - a.time);
}
