// @ts-check
/** Rows of a comparison of two steps: totals, modules and lines. */

import { mergeNumbers, placeOf } from "../../scene/format_numbers_and_names.js";
import { phaseTimes } from "../../scene/phase_times.js";
import { isSavedIn, peakIn } from "../../scene/storage_holds.js";
import { stepOfNode } from "../../scene/step_of_time_or_node.js";

/** @typedef {import("../../types.js").SceneComparisonRow} Row */

/** The modules around and of a path, merged ones with their name: "h.*" and "attn". */
const partsOf = (/** @type {string} */ path) => path.match(/[^.]+(\.\*)*/g) ?? [];

/**
 * Return the rows of a comparison of two steps; the first one is the total.
 *
 * The time of a module and of a line is that of all its ops and nodes, as in the profile of the
 * timeline and in the source view.
 *
 * @param {import("../../scene/scene_index.js").SceneIndex} sceneIndex
 * @param {number} before index of a step
 * @param {number} after
 * @returns {Row[]}
 */
export function compareSteps(sceneIndex, before, after) {
  const { scene, source } = sceneIndex;
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
      const found = modulesOf(path, merged);
      const key = `${merged} ${path} ${place.filename} ${place.lineno}`;
      const label = text || (place.lineno ? placeOf(place) : "no line");
      const line = rowOf(key, () => newRow("line", path, merged, parts.length + 1, label));
      line.lines = [place.lineno];
      return [...found, line];
    });
  const modulesOf = (/** @type {string} */ path, /** @type {boolean} */ merged) => {
    const parts = partsOf(path);
    return parts.map((label, at) => {
      const name = parts.slice(0, at + 1).join(".");
      return rowOf(`${merged} ${name}`, () => newRow("module", name, merged, at + 1, label));
    });
  };
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
        if (row.first_nodes[side] < 0) row.first_nodes[side] = node.index;
      }
    }
    for (const { origin, module, step: own, ns } of scene.call_times) {
      if (own !== step) continue;
      const place = scene.call_frames[origin] ?? { filename: "", lineno: 0 };
      for (const row of [total, ...rowsOf(module, place)]) row.time_ns[side] += ns;
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
  return [total, ...ordered([...rows.values()]), ...phasesOf(sceneIndex, [before, after])];
}

/**
 * Return the time of each phase in the two steps, as in the timeline, without compilations.
 *
 * @param {import("../../scene/scene_index.js").SceneIndex} sceneIndex
 * @param {number[]} steps their indices
 * @returns {Row[]}
 */
function phasesOf(sceneIndex, steps) {
  const { scene } = sceneIndex;
  const times = steps.map((step) => {
    const { start_ns, end_ns } = scene.steps[step];
    const { phases } = phaseTimes(sceneIndex, [start_ns, end_ns], step);
    const of = (/** @type {string} */ name) => {
      const phase = phases.find((each) => each.name === name);
      return phase ? phase.total - phase.compiled : 0;
    };
    const recomputed = phases.reduce((sum, phase) => sum + phase.recomputed, 0);
    return [of("forward"), of("backward"), recomputed, of("optimizer")];
  });
  return PHASES.flatMap((label, at) => {
    const time_ns = times.map((each) => each[at]);
    if (!time_ns.some(Boolean)) return [];
    return [{ ...newRow("phase", "", true, 0, label), steps: [1, 1], time_ns }];
  });
}

const PHASES = ["forward", "backward", "recomputation", "optimizer"];

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
