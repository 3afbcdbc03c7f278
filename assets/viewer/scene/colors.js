// @ts-check
/** What the fill of a node says: by default what kind it is, else how much of something it has. */

import { nodesWithin } from "./scene_index.js";
import { blockOf } from "../canvas/charts.js";
import { formatBytes, formatDuration } from "./format.js";

/** @typedef {typeof COLOURS[number]} Colour */
/** @typedef {"backward" | "saved" | "path" | "leaf" | "mutation"} Hue */
/** @typedef {{hue: Hue, share: number}} Tint share of the hue in the fill, from 0 to 1 */

/**
 * @typedef {object} Tints
 * @property {(node: number) => Tint} node
 * @property {(group: number) => Tint | null} group
 * @property {Hue} hue
 * @property {string} low what the faintest fill means
 * @property {string} high what the strongest does
 */

export const COLOURS = /** @type {const} */ (["kind", "module", "bytes", "time", "gradient"]);

/** Words in the usual ink can be read on it, in both themes. */
const STRONGEST = 0.5;

/**
 * @param {import("./scene_index.js").Atlas} atlas
 * @param {Colour} colour
 * @returns {Tints | null} null where kinds are told, as they are without
 */
export function tintsOf(atlas, colour) {
  const { nodes } = atlas.scene;
  if (colour === "module") return tintsOfModules(atlas);
  if (colour === "bytes") {
    const values = nodes.map((node) =>
      atlas.chips[node.index].reduce((sum, chip) => sum + chip.nbytes, 0),
    );
    return ramp(atlas, values, "saved", (value) => formatBytes(value));
  }
  if (colour === "time") {
    const values = nodes.map((node) => node.duration_ns);
    return ramp(atlas, values, "path", (value) => formatDuration(value));
  }
  return colour === "gradient" ? tintsOfGradients(atlas) : null;
}

/**
 * Amounts as strengths of one hue; a group shows the most that is in it.
 *
 * @param {import("./scene_index.js").Atlas} atlas
 * @param {number[]} values by node
 * @param {Hue} hue
 * @param {(value: number) => string} words
 * @returns {Tints}
 */
function ramp(atlas, values, hue, words) {
  const most = values.reduce((best, value) => Math.max(best, value), 0);
  const share = (/** @type {number} */ value) =>
    value > 0 ? 0.06 + (STRONGEST - 0.06) * Math.sqrt(value / most) : 0;
  return {
    node: (node) => ({ hue, share: share(values[node]) }),
    group: remembered((group) => {
      const inside = nodesWithin(atlas, group);
      return { hue, share: share(inside.reduce((best, n) => Math.max(best, values[n]), 0)) };
    }),
    hue,
    low: words(0),
    high: words(most),
  };
}

/**
 * One hue, alternating tints from block to block.
 *
 * @param {import("./scene_index.js").Atlas} atlas
 * @returns {Tints}
 */
function tintsOfModules(atlas) {
  /** @type {Map<string, number>} */
  const places = new Map();
  const shareOf = (/** @type {string} */ path) => {
    const block = blockOf(path);
    if (!block) return 0;
    if (!places.has(block)) places.set(block, places.size);
    return /** @type {number} */ (places.get(block)) % 2 ? 0.4 : 0.14;
  };
  for (const node of atlas.scene.nodes) shareOf(node.module);
  return {
    node: (node) => ({ hue: "backward", share: shareOf(atlas.scene.nodes[node].module) }),
    group: (group) => {
      const { kind, path } = atlas.scene.groups[group];
      return kind === "repeat" || kind === "page"
        ? null
        : { hue: "backward", share: shareOf(path) };
    },
    hue: "backward",
    low: "every other module",
    high: "the next",
  };
}

/**
 * Norms of the gradients of a node's parameters; red where one is None, zero or not finite.
 *
 * @param {import("./scene_index.js").Atlas} atlas
 * @returns {Tints}
 */
function tintsOfGradients(atlas) {
  const norms = atlas.pennants.map((pennants) =>
    pennants.reduce((most, pennant) => Math.max(most, pennant.norm ?? 0), 0),
  );
  const known = norms.filter((norm) => norm > 0);
  const most = known.reduce((best, norm) => Math.max(best, norm), 0);
  const least = known.reduce((best, norm) => Math.min(best, norm), most);
  const width = Math.log(most / least) || 1;
  const tint = (/** @type {number} */ node) => {
    const pennants = atlas.pennants[node];
    const wrong = pennants.some(({ grad }) => grad === "none" || grad === "zero" || grad === "nan");
    if (wrong) return /** @type {Tint} */ ({ hue: "mutation", share: 0.35 });
    if (!pennants.some(({ grad }) => grad === "ok"))
      return /** @type {Tint} */ ({ hue: "leaf", share: 0 });
    const norm = norms[node];
    const share = norm > 0 ? 0.15 + (STRONGEST - 0.15) * (Math.log(norm / least) / width) : 0.3;
    return /** @type {Tint} */ ({ hue: "leaf", share });
  };
  return {
    node: tint,
    group: remembered((group) => {
      const tints = nodesWithin(atlas, group).map(tint);
      const wrong = tints.find(({ hue }) => hue === "mutation");
      return (
        wrong ?? tints.reduce((a, b) => (b.share > a.share ? b : a), { hue: "leaf", share: 0 })
      );
    }),
    hue: "leaf",
    low: known.length ? `norm ${least.toPrecision(2)}` : "no gradient here",
    high: known.length ? `norm ${most.toPrecision(2)}` : "has a gradient",
  };
}

/**
 * @template Value
 * @param {(key: number) => Value} work
 * @returns {(key: number) => Value} the same, worked out once for each key
 */
function remembered(work) {
  /** @type {Map<number, Value>} */
  const known = new Map();
  return (key) => {
    if (!known.has(key)) known.set(key, work(key));
    return /** @type {Value} */ (known.get(key));
  };
}
