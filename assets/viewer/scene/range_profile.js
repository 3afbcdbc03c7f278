// @ts-check
/** Time of a range of the recording, summed by node, module or line. */

import { formatPlace } from "./format_numbers_and_names.js";
import { compileTimes, idleTimes, overlapOf } from "./idle_and_compile_times.js";
import { isTimed } from "./step_of_time_or_node.js";

/** @typedef {"node" | "module" | "line"} Grouping */
/** @typedef {[start: number, end: number]} TimeRange nanoseconds */
/** @typedef {"forward" | "compile" | "backward" | "accumulate" | "recompute" | "optimizer" | "outside"} Phase */

/**
 * @typedef {object} ProfileRow
 * @property {string} label
 * @property {Phase} phase the first one
 * @property {Record<string, number>} parts of the time, by phase: lines and modules have several
 * @property {string} filename of a line, "" for other rows
 * @property {number} lineno
 * @property {Set<string>} modules
 * @property {number} count
 * @property {number} time self time within the range, nanoseconds
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
 * that failed has no end; idle time after its start is not its time. Lines and modules of the
 * recording or of a step have all their ops, as in the source view and the fold; of another range,
 * those of nodes.
 *
 * @param {import("./scene_index.js").SceneIndex} sceneIndex
 * @param {TimeRange} range
 * @param {Grouping} grouping
 * @param {number} [step] index of the step that is the range, -1 or AFTER_WARM_UP for the recording
 * @returns {ProfileRow[]} the longest first
 */
export function profileRange({ scene, end: last }, [start, end], grouping, step) {
  /** @type {Map<string, ProfileRow>} */
  const rows = new Map();
  const rowOf = (
    /** @type {string} */ name,
    /** @type {Phase} */ phase,
    /** @type {Partial<import("../types.js").SceneNode>} */ source = {},
  ) => {
    const { index = -1, module = "", filename = "", lineno = 0 } = source;
    const isLine = grouping === "line" && filename;
    const isModule = grouping === "module" && module;
    const label = isLine ? formatPlace(filename, lineno) : isModule ? module : name;
    const key = isLine
      ? `${lineno} ${filename}`
      : isModule
        ? `|${module}`
        : name === `no ${grouping}`
          ? ""
          : `${phase}|${name}`;
    const nothing = { modules: new Set(), parts: {}, count: 0, time: 0 };
    const line = isLine ? { filename, lineno } : { filename: "", lineno: 0 };
    const row = rows.get(key) ?? { label, phase, node: index, ...line, ...nothing };
    rows.set(key, row);
    if (row.node < 0) row.node = index;
    if (module) row.modules.add(module);
    return row;
  };
  const add = (
    /** @type {ProfileRow} */ row,
    /** @type {Phase} */ phase,
    /** @type {number} */ time,
    count = 1,
  ) => {
    row.count += count;
    row.time += time;
    row.parts[phase] = (row.parts[phase] ?? 0) + time;
  };
  const inRange = (
    /** @type {import("./idle_and_compile_times.js").Intervals} */ intervals,
    /** @type {number} */ from,
    /** @type {number} */ to,
  ) => overlapOf(intervals, Math.max(from, start), Math.min(to, end));
  const idle = idleTimes(scene);
  const overlap = (/** @type {number} */ from, /** @type {number} */ to) =>
    Math.max(0, Math.min(to, end) - Math.max(from, start)) - inRange(idle, from, to);
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
  ) => ({ node: name, module: node.module || "no module", line: "no line" })[grouping];
  const byCalls = grouping !== "node" && step !== undefined;
  for (const row of byCalls ? scene.call_times : []) {
    if (!isTimed(Number(step), row.step)) continue;
    const phase = /** @type {Phase} */ (row.phase);
    const { filename, lineno } = scene.call_frames[row.origin] ?? {};
    const source = { module: row.module, filename, lineno };
    add(rowOf(`no ${grouping}`, phase, source), phase, row.ns, row.count);
  }
  for (const node of scene.nodes) {
    if (byCalls) {
      // Its times are in those of calls.
      const key = grouping === "line" ? `${node.lineno} ${node.filename}` : `|${node.module}`;
      if (rows.has(key)) rowOf("", "forward", node);
      continue;
    }
    const time = overlap(node.born_ns, node.born_ns + node.forward_ns);
    if (node.born_ns >= 0 && time) {
      add(rowOf(groupName(node, node.op || node.name), "forward", node), "forward", time);
    }
    // The runs of drawn nodes are complete; of their spans, the shortest may be left out.
    const runs = node.runs_ns;
    let left = node.duration_ns; // of the run that failed, after all others
    for (let at = 0; at < runs.length; at += 2) {
      let failed = left > 0 ? runs[at] + left : last;
      for (const [from, to] of idle) if (from >= runs[at] && from <= failed) failed += to - from;
      const until = runs[at + 1] < 0 ? failed : runs[at + 1];
      left -= until - runs[at];
      const time = overlap(runs[at], until);
      if (!time) continue;
      const selfTime = time - recomputeTime(runs[at], until) - compileTime(runs[at], until);
      add(rowOf(groupName(node, node.name), "backward", node), "backward", selfTime);
    }
  }
  for (const { kind, label, depth, ref, start_ns, end_ns } of scene.spans) {
    const time = overlap(start_ns, end_ns);
    const isPart = depth && (kind === "recompute" || kind === "compile");
    if (!time || isPart || (byCalls && kind !== "compile")) continue;
    const self = time - compileTime(start_ns, end_ns);
    if (kind === "node" && ref < 0) {
      const phase = label.endsWith("AccumulateGrad") ? "accumulate" : "backward";
      add(rowOf(label, phase), phase, self - recomputeTime(start_ns, end_ns));
    } else if (kind === "recompute") {
      const row = rowOf(`${label || "region"}, recomputed`, kind, { module: label });
      add(row, kind, time);
    } else if (kind === "optimizer") add(rowOf(kind, kind), kind, self);
    else if (kind === "compile") add(rowOf(label, kind), kind, time);
  }
  return [...rows.values()].sort((a, b) => b.time - a.time);
}
