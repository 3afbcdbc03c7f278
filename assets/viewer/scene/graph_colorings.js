// @ts-check
/** Colorings of the graph: the fill of nodes and groups by module, bytes, time, gradient or change. */

import { rowWith } from "../payload/lazy_rows.js";
import { nodesWithin } from "./scene_index.js";
import {
  blockPrefix,
  formatBytes,
  formatDuration,
  formatNorm,
} from "./format_numbers_and_names.js";

/** @typedef {typeof COLORS[number]} ColorBy "kind" is the default, without a coloring */
/** @typedef {"backward" | "saved" | "path" | "leaf" | "mutation"} Hue */
/** @typedef {{hue: Hue, share: number}} Tint `share` of the hue in the fill, from 0 to 1 */

/**
 * Return the fill of a place on a scale: blue at its low end, pale in its middle, orange at its
 * high end, so that a norm of 0.004 does not look like one of 1.3.
 *
 * @param {number} at from 0 to 1
 * @returns {Tint}
 */
export function ramp(at) {
  const share = 0.04 + (MAX_SHARE - 0.04) * Math.abs(2 * at - 1);
  return { hue: at < 0.5 ? "backward" : "path", share };
}

/**
 * Return the fill of an amount, which is stronger for a larger one.
 *
 * @param {number} at from 0 to 1
 * @returns {Tint}
 */
const amount = (at) => ({ hue: "path", share: 0.06 + (MAX_SHARE - 0.06) * at });

/**
 * @typedef {object} Coloring
 * @property {(node: number) => Tint} node
 * @property {(group: number) => Tint | null} group
 * @property {((at: number) => Tint)} scale
 * @property {string} low label of the weakest fill
 * @property {string} high label of the strongest fill
 * @property {[Tint, label: string][]} [kinds] of fills, if they are no scale
 */

export const COLORS = /** @type {const} */ ([
  "kind",
  "module",
  "bytes",
  "time",
  "gradient",
  "change",
]);

/** @type {Tint} of nodes that a coloring says nothing about */
const NO_TINT = { hue: "leaf", share: 0 };
/** @type {Tint} of a gradient without a norm */
const PRESENT = { hue: "leaf", share: 0.3 };
/** @type {Tint} of a gradient that is None, zero or not finite */
const WRONG = { hue: "mutation", share: 0.35 };

/** Text stays readable on this share of a hue, in both themes. */
const MAX_SHARE = 0.5;

/**
 * @param {import("./scene_index.js").SceneIndex} sceneIndex
 * @param {ColorBy} colorBy
 * @returns {Coloring | null} null for "kind"
 */
export function makeColoring(sceneIndex, colorBy) {
  const { nodes } = sceneIndex.scene;
  if (colorBy === "module") return moduleColoring(sceneIndex);
  if (colorBy === "bytes") {
    const values = nodes.map((node) => node.saved_nbytes);
    return amountColoring(sceneIndex, values, (value) => formatBytes(value));
  }
  if (colorBy === "time") {
    const values = nodes.map((node) => node.duration_ns);
    return amountColoring(sceneIndex, values, (value) => formatDuration(value));
  }
  if (colorBy === "change") return changeColoring(sceneIndex);
  return colorBy === "gradient" ? gradientColoring(sceneIndex) : null;
}

/** Self times that differ by less than this factor may vary between runs. */
const TIME_FACTOR = 1.5;

/** So may those that differ by less than this share of the time of a step. */
const TIME_SHARE = 0.02;

/** Steps that count from which on the percentage of a time says something. */
export const MANY_STEPS = 3;

/** @param {import("../types.js").SceneComparisonRow[]} rows of a comparison */
export const isMeasured = (rows) => {
  const phases = [...rows].filter(({ kind }) => kind === "phase");
  return phases.length > 0 && phases.every(({ steps }) => Math.min(...steps) >= MANY_STEPS);
};

/**
 * Return rows of two recordings with means per step: times of the steps whose times count, and
 * nodes and bytes of all steps.
 *
 * @param {Iterable<import("../types.js").SceneComparisonRow>} rows
 * @returns {import("../types.js").SceneComparisonRow[]}
 */
export function meansPerStep(rows) {
  return [...rows].map((row) => {
    const { steps, left_out, nodes, saved, recomputed, time_ns } = row;
    const mean = (/** @type {number[]} */ sums) =>
      sums.map((sum, side) => sum / (steps[side] + left_out[side]));
    return rowWith(row, {
      ...{ nodes: mean(nodes), saved: mean(saved), recomputed: mean(recomputed) },
      time_ns: time_ns.map((ns, side) => ns / steps[side]),
    });
  });
}

/**
 * @param {import("../types.js").SceneComparisonRow[]} phases
 * @returns {boolean} whether the steps of one recording all took longer than those of the other
 *   one, by more than they differ from each other, in the sum of phases
 */
export const isBeyondSpread = (phases) => {
  const sums = (/** @type {"least_ns" | "most_ns"} */ field) =>
    [0, 1].map((side) => phases.reduce((total, row) => total + (row[field][side] ?? 0), 0));
  const [least, most] = [sums("least_ns"), sums("most_ns")];
  const gap = Math.max(least[0] - most[1], least[1] - most[0]);
  return gap > Math.max(most[0] - least[0], most[1] - least[1]);
};

/**
 * Return a function that tells whether the self times of a line differ by more than they vary from
 * run to run. A ratio alone is not enough: a line of a few microseconds easily takes twice as long.
 *
 * @param {import("../types.js").SceneComparisonRow[]} rows of a comparison
 * @returns {(times: number[]) => boolean} always false if too few steps were recorded
 */
export function timeBound(rows) {
  if (!isMeasured(rows)) return () => false;
  const total = rows.find(({ kind }) => kind === "total");
  const floor = TIME_SHARE * Math.max(0, ...(total?.time_ns ?? []));
  return (times) => {
    const [least, most] = [Math.min(...times), Math.max(...times)];
    return most - least >= floor && most >= TIME_FACTOR * Math.max(1, least);
  };
}

/** @type {[Tint, label: string][]} weakest first */
const CHANGES = [
  [{ hue: "backward", share: 0 }, "same"],
  [{ hue: "path", share: 0.4 }, "time"],
  [{ hue: "saved", share: 0.4 }, "bytes or nodes"],
  [{ hue: "backward", share: MAX_SHARE }, "only here"],
];

/**
 * Show how the source line of a node differs from that of the other recording.
 *
 * @param {import("./scene_index.js").SceneIndex} sceneIndex
 * @returns {Coloring | null} null without another recording
 */
function changeColoring(sceneIndex) {
  const { nodes, summary, comparison_rows } = sceneIndex.scene;
  const rows = meansPerStep(comparison_rows);
  if (!rows.length) return null;
  const side = summary.is_before ? 0 : 1;
  /** @type {Map<string, number>} */
  const levels = new Map();
  const timeDiffers = timeBound(rows);
  for (const { kind, merged, module, lines, status, saved, recomputed, time_ns } of rows) {
    if (kind !== "line" || merged) continue;
    const differs =
      status === "changed" || saved[0] !== saved[1] || recomputed[0] !== recomputed[1];
    const isOnlyHere = status === "added" || status === "removed";
    levels.set(`${module}:${lines[side]}`, isOnlyHere ? 3 : differs ? 2 : +timeDiffers(time_ns));
  }
  const level = (/** @type {number} */ node) =>
    levels.get(`${nodes[node].module}:${nodes[node].lineno}`) ?? 0;
  return {
    node: (node) => CHANGES[level(node)][0],
    group: memoize(
      (group) => CHANGES[Math.max(0, ...nodesWithin(sceneIndex, group).map(level))][0],
    ),
    scale: ramp,
    low: "",
    high: "",
    kinds: CHANGES,
  };
}

/**
 * Show amounts on a logarithmic scale; zero has no fill. A group has the largest amount of its
 * nodes.
 *
 * @param {import("./scene_index.js").SceneIndex} sceneIndex
 * @param {number[]} values by node
 * @param {(value: number) => string} format
 * @returns {Coloring}
 */
function amountColoring(sceneIndex, values, format) {
  const most = values.reduce((best, value) => Math.max(best, value), 0);
  const least = values.reduce((best, value) => (value > 0 ? Math.min(best, value) : best), most);
  const tint = (/** @type {number} */ value) =>
    value > 0 ? amount(Math.log(value / least) / (Math.log(most / least) || 1)) : NO_TINT;
  return {
    node: (node) => tint(values[node]),
    group: memoize((group) => {
      const inside = nodesWithin(sceneIndex, group);
      return tint(inside.reduce((best, n) => Math.max(best, values[n]), 0));
    }),
    scale: amount,
    low: format(least),
    high: format(most),
  };
}

/**
 * Alternate between two tints of one hue from block to block.
 *
 * @param {import("./scene_index.js").SceneIndex} sceneIndex
 * @returns {Coloring}
 */
function moduleColoring(sceneIndex) {
  /** @type {Map<string, number>} */
  const blocks = new Map();
  const shareOf = (/** @type {string} */ path) => {
    const block = blockPrefix(path);
    if (!block) return 0;
    if (!blocks.has(block)) blocks.set(block, blocks.size);
    return /** @type {number} */ (blocks.get(block)) % 2 ? 0.4 : 0.14;
  };
  for (const node of sceneIndex.scene.nodes) shareOf(node.module);
  return {
    node: (node) => ({ hue: "backward", share: shareOf(sceneIndex.scene.nodes[node].module) }),
    group: (group) => {
      const { kind, path } = sceneIndex.scene.groups[group];
      return kind === "repeat" || kind === "page" || kind === "iteration"
        ? null
        : { hue: "backward", share: shareOf(path) };
    },
    scale: ramp,
    low: "",
    high: "",
    kinds: [
      [{ hue: "backward", share: 0.14 }, "one block"],
      [{ hue: "backward", share: 0.4 }, "the next block"],
    ],
  };
}

/**
 * Show the largest gradient norm of a node's parameters; red if one is None, zero or not finite.
 *
 * @param {import("./scene_index.js").SceneIndex} sceneIndex
 * @returns {Coloring}
 */
function gradientColoring(sceneIndex) {
  const norms = sceneIndex.parameters.map((parameters) =>
    parameters.reduce((most, each) => Math.max(most, each.norm ?? 0), 0),
  );
  const known = sceneIndex.parameters.flat().flatMap(({ norm }) => norm || []);
  const most = known.reduce((best, norm) => Math.max(best, norm), 0);
  const least = known.reduce((best, norm) => Math.min(best, norm), most);
  const logRange = Math.log(most / least) || 1;
  const tint = (/** @type {number} */ node) => {
    const parameters = sceneIndex.parameters[node];
    const wrong = parameters.some(
      ({ grad }) => grad === "none" || grad === "zero" || grad === "nan",
    );
    if (wrong) return WRONG;
    if (!parameters.some(({ grad }) => grad === "ok")) return NO_TINT;
    return norms[node] > 0 ? ramp(Math.log(norms[node] / least) / logRange) : PRESENT;
  };
  return {
    node: tint,
    group: memoize((group) => {
      const inside = nodesWithin(sceneIndex, group);
      if (inside.some((node) => tint(node) === WRONG)) return WRONG;
      const largest = inside.reduce((best, node) => (norms[node] > norms[best] ? node : best));
      return norms[largest] > 0
        ? tint(largest)
        : (inside.map(tint).find((each) => each === PRESENT) ?? NO_TINT);
    }),
    scale: ramp,
    low: `norm ${formatNorm(least)}`,
    high: `norm ${formatNorm(most)}`,
    kinds: known.length
      ? undefined
      : [
          [PRESENT, "got a gradient, its norm was not read"],
          [WRONG, "none, zero or not finite"],
        ],
  };
}

/**
 * @template Value
 * @param {(key: number) => Value} compute
 * @returns {(key: number) => Value} caches the value of each key
 */
function memoize(compute) {
  /** @type {Map<number, Value>} */
  const known = new Map();
  return (key) => {
    if (!known.has(key)) known.set(key, compute(key));
    return /** @type {Value} */ (known.get(key));
  };
}
