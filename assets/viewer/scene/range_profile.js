// @ts-check
/** What ran in a stretch of time, added up. */

import { formatPlace } from "./format.js";

/** @typedef {"node" | "module" | "line"} Grouping */

/**
 * @typedef {object} Sum
 * @property {string} label
 * @property {string} phase
 * @property {Set<string>} modules
 * @property {number} count
 * @property {number} time self time within the stretch, nanoseconds
 * @property {number} released bytes let go within it
 * @property {number} node index of one of them, -1
 */

/**
 * Add up forward ops, backward nodes, recomputations and optimizers between two times.
 *
 * A node's own time is without the recomputation that it waited for.
 *
 * @param {import("./scene_index.js").Atlas} atlas
 * @param {[start: number, end: number]} stretch
 * @param {Grouping} grouping
 * @returns {Sum[]} the longest first
 */
export function sumsOf({ scene, chips }, [start, end], grouping) {
  /** @type {Map<string, Sum>} */
  const sums = new Map();
  const add = (
    /** @type {string} */ label,
    /** @type {string} */ phase,
    /** @type {string} */ module,
    /** @type {number} */ time,
    /** @type {number} */ node,
  ) => {
    const key = `${phase}|${label}`;
    let sum = sums.get(key);
    if (!sum) {
      sum = { label, phase, modules: new Set(), count: 0, time: 0, released: 0, node };
      sums.set(key, sum);
    }
    sum.count += 1;
    sum.time += time;
    if (module) sum.modules.add(module);
    return sum;
  };
  const overlap = (/** @type {number} */ from, /** @type {number} */ to) =>
    Math.max(0, Math.min(to, end) - Math.max(from, start));
  const again = scene.spans.filter((span) => span.kind === "recompute" && !span.depth);
  const waited = (/** @type {number} */ from, /** @type {number} */ to) =>
    again.reduce(
      (sum, span) =>
        span.start_ns >= from && span.end_ns <= to
          ? sum + overlap(span.start_ns, span.end_ns)
          : sum,
      0,
    );
  const nameOf = (
    /** @type {import("../types.js").SceneNode} */ node,
    /** @type {string} */ name,
  ) =>
    ({
      node: name,
      module: node.module || "outside modules",
      line: formatPlace(node.filename, node.lineno) || "no line",
    })[grouping];
  for (const node of scene.nodes) {
    const made = overlap(node.born_ns, node.born_ns + node.forward_ns);
    if (node.born_ns >= 0 && made) {
      add(nameOf(node, node.op || node.name), "forward", node.module, made, node.index);
    }
  }
  for (const span of scene.spans) {
    const time = overlap(span.start_ns, span.end_ns);
    if (!time) continue;
    if (span.kind === "node") {
      const node = scene.nodes[span.ref];
      const own = time - waited(span.start_ns, span.end_ns);
      const accumulates = span.label.endsWith("AccumulateGrad");
      const phase = accumulates ? "accumulate" : "backward";
      const label = node ? nameOf(node, span.label) : span.label;
      const sum = add(label, phase, node?.module ?? "", own, span.ref);
      for (const chip of node ? chips[node.index] : []) {
        const { released_ns } = chip;
        if (released_ns >= span.start_ns && released_ns < end) sum.released += chip.nbytes;
      }
    } else if (span.kind === "recompute" && !span.depth) {
      add(`${span.label || "region"}, again`, "recompute", span.label, time, -1);
    } else if (span.kind === "optimizer") {
      add("optimizer", "optimizer", "", time, -1);
    }
  }
  return [...sums.values()].sort((a, b) => b.time - a.time);
}

/**
 * Bytes that backward kept at a time.
 *
 * @param {import("../types.js").Scene} scene
 * @param {number} time
 * @returns {number}
 */
export function keptAt(scene, time) {
  return scene.memory.findLast((point) => point.time_ns <= time)?.nbytes ?? 0;
}
