// @ts-check
/** Colorings of the graph: the fill of nodes and groups by module, bytes, time, gradient or change. */

import { nodesWithin } from "./scene_index.js";
import { blockPrefix, formatBytes, formatDuration, formatNorm } from "./format.js";

/** @typedef {typeof COLORS[number]} ColorBy "kind" is the default, without a coloring */
/** @typedef {"backward" | "saved" | "path" | "leaf" | "mutation"} Hue */
/** @typedef {{hue: Hue, share: number}} Tint `share` of the hue in the fill, from 0 to 1 */

/**
 * @typedef {object} Coloring
 * @property {(node: number) => Tint} node
 * @property {(group: number) => Tint | null} group
 * @property {Hue} hue
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
    return amountColoring(sceneIndex, values, "saved", (value) => formatBytes(value));
  }
  if (colorBy === "time") {
    const values = nodes.map((node) => node.duration_ns);
    return amountColoring(sceneIndex, values, "path", (value) => formatDuration(value));
  }
  if (colorBy === "change") return changeColoring(sceneIndex);
  return colorBy === "gradient" ? gradientColoring(sceneIndex) : null;
}

/** Self times that differ by less than this factor may vary between runs. */
const TIME_FACTOR = 1.5;

/** So may those that differ by less than this share of the time of a whole recording. */
const TIME_SHARE = 0.02;

/**
 * Return a function that tells whether the self times of a line differ by more than they vary from
 * run to run. A ratio alone is not enough: a line of a few microseconds easily takes twice as long.
 *
 * @param {import("../types.js").SceneComparisonRow[]} rows of a comparison
 * @returns {(times: number[]) => boolean}
 */
export function timeBound(rows) {
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
  const { nodes, summary, comparison_rows: rows } = sceneIndex.scene;
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
    hue: "backward",
    low: "",
    high: "",
    kinds: CHANGES,
  };
}

/**
 * Show amounts as strengths of one hue. A group has the largest amount of its nodes.
 *
 * @param {import("./scene_index.js").SceneIndex} sceneIndex
 * @param {number[]} values by node
 * @param {Hue} hue
 * @param {(value: number) => string} format
 * @returns {Coloring}
 */
function amountColoring(sceneIndex, values, hue, format) {
  const most = values.reduce((best, value) => Math.max(best, value), 0);
  const share = (/** @type {number} */ value) =>
    value > 0 ? 0.06 + (MAX_SHARE - 0.06) * Math.sqrt(value / most) : 0;
  return {
    node: (node) => ({ hue, share: share(values[node]) }),
    group: memoize((group) => {
      const inside = nodesWithin(sceneIndex, group);
      return { hue, share: share(inside.reduce((best, n) => Math.max(best, values[n]), 0)) };
    }),
    hue,
    low: format(0),
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
    hue: "backward",
    low: "one block",
    high: "the next block",
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
  const known = norms.filter((norm) => norm > 0);
  const most = known.reduce((best, norm) => Math.max(best, norm), 0);
  const least = known.reduce((best, norm) => Math.min(best, norm), most);
  const logRange = Math.log(most / least) || 1;
  const tint = (/** @type {number} */ node) => {
    const parameters = sceneIndex.parameters[node];
    const wrong = parameters.some(
      ({ grad }) => grad === "none" || grad === "zero" || grad === "nan",
    );
    if (wrong) return /** @type {Tint} */ ({ hue: "mutation", share: 0.35 });
    if (!parameters.some(({ grad }) => grad === "ok"))
      return /** @type {Tint} */ ({ hue: "leaf", share: 0 });
    const norm = norms[node];
    const share = norm > 0 ? 0.15 + (MAX_SHARE - 0.15) * (Math.log(norm / least) / logRange) : 0.3;
    return /** @type {Tint} */ ({ hue: "leaf", share });
  };
  return {
    node: tint,
    group: memoize((group) => {
      const tints = nodesWithin(sceneIndex, group).map(tint);
      const wrong = tints.find(({ hue }) => hue === "mutation");
      return (
        wrong ?? tints.reduce((a, b) => (b.share > a.share ? b : a), { hue: "leaf", share: 0 })
      );
    }),
    hue: "leaf",
    low: known.length ? `norm ${formatNorm(least)}` : "no gradient",
    high: known.length ? `norm ${formatNorm(most)}` : "has a gradient",
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
