// @ts-check
/** Rows of a comparison of two steps: totals, modules and lines. */

import { idleTimes, overlapOf } from "../../scene/idle_and_compile_times.js";
import { isSavedIn, peakIn } from "../../scene/storage_holds.js";
import { stepAt, stepOfNode } from "../../scene/step_of_time_or_node.js";

/** @typedef {import("../../types.js").SceneComparisonRow} Row */

/** The modules of a path, numbered ones merged: "h.*.attn" of "h.3.attn". */
const mergeNumbers = (/** @type {string} */ path) => path.replace(/\.\d+(?=\.|$)/g, ".*");

/** The modules around and of a path, merged ones with their name: "h.*" and "attn". */
const partsOf = (/** @type {string} */ path) => path.match(/[^.]+(\.\*)*/g) ?? [];

/**
 * Return the rows of a comparison of two steps; the first one is the total.
 *
 * Times are those of the forward ops and backward nodes that a step created.
 *
 * @param {import("../../scene/scene_index.js").SceneIndex} sceneIndex
 * @param {number} before index of a step
 * @param {number} after
 * @returns {Row[]}
 */
export function compareSteps({ scene, source }, before, after) {
  /** @type {Map<string, Row>} */
  const rows = new Map();
  const total = newRow("total", "", true, 0, "");
  /**
   * @param {string} module
   * @param {{filename: string, lineno: number}} place
   * @returns {Row[]} all rows that something counts for
   */
  const rowsOf = (module, place) =>
    [true, false].flatMap((merged) => {
      const path = merged ? mergeNumbers(module) : module;
      const text = source.get(place.filename)?.get(place.lineno)?.trim();
      const parts = partsOf(path);
      const found = parts.map((label, at) => {
        const name = parts.slice(0, at + 1).join(".");
        return rowOf(`${merged} ${name}`, () => newRow("module", name, merged, at + 1, label));
      });
      const key = `${merged} ${path} ${place.filename} ${place.lineno}`;
      const label = text || `${place.filename}:${place.lineno}`;
      const line = rowOf(key, () => newRow("line", path, merged, parts.length + 1, label));
      line.lines = [place.lineno];
      return [...found, line];
    });
  const rowOf = (/** @type {string} */ key, /** @type {() => Row} */ make) => {
    const row = rows.get(key) ?? make();
    rows.set(key, row);
    return row;
  };
  [before, after].forEach((step, side) => {
    for (const node of scene.nodes) {
      if (stepOfNode(scene, node) !== step) continue;
      for (const row of [total, ...rowsOf(node.module, node)]) {
        row.nodes[side] += 1;
        row.time_ns[side] += node.forward_ns + node.duration_ns;
        if (row.first_nodes[side] < 0) row.first_nodes[side] = node.index;
      }
    }
    for (const storage of scene.counted_storages) {
      if (!isSavedIn(scene, storage, step)) continue;
      for (const row of [total, ...rowsOf(storage.module, storage)]) {
        row[storage.recomputed ? "recomputed" : "saved"][side] += storage.nbytes;
      }
    }
  });
  const peakOf = (/** @type {number} */ step) =>
    peakIn(scene, scene.steps[step]).nbytes + scene.summary.older_nbytes;
  total.at_peak = [peakOf(before), peakOf(after)];
  for (const row of [total, ...rows.values()]) {
    const same = [row.nodes, row.saved, row.recomputed].every(([a, b]) => a === b);
    row.status = !row.nodes[0] && row.nodes[1] ? "added" : same ? "same" : "changed";
    if (row.nodes[0] && !row.nodes[1]) row.status = "removed";
  }
  return [total, ...ordered([...rows.values()]), ...phasesOf(scene, [before, after])];
}

/**
 * Return the time of each phase in the two steps, without idle time.
 *
 * @param {import("../../types.js").Scene} scene
 * @param {number[]} steps their indices
 * @returns {Row[]}
 */
function phasesOf(scene, steps) {
  const gaps = idleTimes(scene);
  /** @type {Map<string, Row>} */
  const phases = new Map();
  for (const { kind, depth, start_ns, end_ns } of scene.spans) {
    const label = PHASES[kind];
    const own = stepAt(scene, start_ns);
    if (!steps.includes(own) || !label || (depth && kind !== "recompute")) continue;
    const row = phases.get(label) ?? newRow("phase", "", true, 0, label);
    phases.set(label, row);
    row.steps = [1, 1];
    const time = end_ns - start_ns - overlapOf(gaps, start_ns, end_ns);
    steps.forEach((step, side) => (row.time_ns[side] += step === own ? time : 0));
  }
  return Object.values(PHASES).flatMap((label) => phases.get(label) ?? []);
}

/** @type {Record<string, string>} name of a phase by kind of span */
const PHASES = {
  forward: "forward",
  backward: "backward",
  recompute: "recomputation",
  optimizer: "optimizer",
};

/**
 * Return rows with the lines and modules of a module behind it.
 *
 * @param {Row[]} rows
 * @returns {Row[]}
 */
function ordered(rows) {
  /** @type {Map<string, Row[]>} */
  const below = new Map();
  for (const row of rows) {
    const parent = row.kind === "line" ? row.module : partsOf(row.module).slice(0, -1).join(".");
    const key = `${row.merged} ${parent}`;
    const siblings = below.get(key) ?? [];
    below.set(key, siblings);
    siblings.push(row);
  }
  /** @type {Row[]} */
  const sorted = [];
  const visit = (/** @type {string} */ key) => {
    for (const row of below.get(key) ?? []) {
      sorted.push(row);
      if (row.kind === "module") visit(`${row.merged} ${row.module}`);
    }
  };
  for (const merged of [1, 0]) visit(`${merged} `);
  return sorted;
}

/**
 * @param {Row["kind"]} kind
 * @param {string} module
 * @param {boolean} merged
 * @param {number} depth
 * @param {string} label
 * @returns {Row}
 */
function newRow(kind, module, merged, depth, label) {
  const none = () => [0, 0];
  return {
    kind,
    merged: /** @type {0 | 1} */ (Number(merged)),
    depth,
    label,
    module,
    status: "same",
    lines: [],
    nodes: none(),
    other_nodes: "",
    saved: none(),
    recomputed: none(),
    at_peak: none(),
    time_ns: none(),
    norm_before: null,
    norm_after: null,
    first_nodes: [-1, -1],
    steps: [],
    left_out: [],
    least_ns: none(),
    most_ns: none(),
  };
}
