// @ts-check
/** Filters of the search: `op:softmax saved>1MB step:18 module:layers.3 not-reached`. */

import { formatPlace, placeOf } from "../scene/format_numbers_and_names.js";
import { stepOfNode } from "../scene/step_of_time_or_node.js";

/** @typedef {import("../types.js").SceneNode} Node */
/** @typedef {import("../scene/scene_index.js").SceneIndex} SceneIndex */
/** @typedef {(node: Node) => boolean} Filter */

/**
 * @typedef {object} Query
 * @property {string[]} words in lower case
 * @property {Filter[]} filters
 * @property {string[]} unknown parts that look like filters and are none
 */

/** For the help and the list of results. */
export const FILTERS = /** @type {[example: string, meaning: string][]} */ ([
  ["op:softmax", "name of the op or of its node"],
  ["module:layers.3", "in this module"],
  ["line:train.py:12", "made by this line, or by any of a file"],
  ["param:weight", "reads this parameter"],
  ["shape:2×32", "shape of the output"],
  ["step:18", "made in this step"],
  ["saved>1MB", "bytes that it keeps alive; also <"],
  ["time>1ms", "forward and backward; also <"],
  ["not-reached", "no backward ran it"],
  ["recomputed, failed, written, hooked, nan, finding", "what happened to it"],
]);

const UNITS = /** @type {Record<string, number>} */ ({
  "": 1,
  b: 1,
  kb: 1e3,
  mb: 1e6,
  gb: 1e9,
  ns: 1,
  us: 1e3,
  µs: 1e3,
  ms: 1e6,
  s: 1e9,
});

/**
 * @param {SceneIndex} sceneIndex
 * @returns {Record<string, (value: string) => Filter>}
 */
const texts = ({ scene, parameters }) => ({
  op: (value) => (node) => `${node.op} ${node.name}`.toLowerCase().includes(value),
  module: (value) => (node) => `.${node.module.toLowerCase()}.`.includes(`.${value}.`),
  line: (value) => (node) =>
    node.lineno > 0 &&
    [
      node.filename,
      `${node.filename}:${node.lineno}`,
      formatPlace(node.filename, 0),
      placeOf(node),
    ].some((place) => place.toLowerCase() === value),
  param: (value) => (node) =>
    parameters[node.index].some(({ name, label }) =>
      `${name} ${label}`.toLowerCase().includes(value),
    ),
  shape: (value) => (node) => node.shape.includes(value.replace(/x/g, "×")),
  step: (value) => (node) => String(scene.steps[stepOfNode(scene, node)]?.number) === value,
});

/** @type {Record<string, (node: Node) => number>} */
const AMOUNTS = {
  saved: ({ saved_nbytes }) => saved_nbytes,
  time: ({ forward_ns, duration_ns }) => forward_ns + duration_ns,
};

/**
 * @param {SceneIndex} sceneIndex
 * @returns {Record<string, Filter>}
 */
const flags = ({ findings, savedTensors }) => ({
  "not-reached": ({ state }) => state === "not_run",
  "no-grad": ({ state }) => state === "not_run",
  recomputed: ({ recomputes }) => recomputes > 0,
  failed: ({ state, error }) => state === "failed" || !!error,
  written: ({ index, wrote, writes }) =>
    !!(wrote || writes) ||
    savedTensors[index].some(({ state }) => state === "stale" || state === "broken"),
  hooked: ({ hooks }) => hooks.length > 0,
  nan: ({ not_finite }) => not_finite !== "",
  finding: ({ index }) => findings[index].length > 0,
});

/**
 * @param {SceneIndex} sceneIndex
 * @param {string} text
 * @returns {Query}
 */
export function parseQuery(sceneIndex, text) {
  const byText = texts(sceneIndex);
  const byFlag = flags(sceneIndex);
  /** @type {Query} */
  const query = { words: [], filters: [], unknown: [] };
  for (const part of text.toLowerCase().split(/\s+/).filter(Boolean)) {
    const [, key, sign, value] = /^([a-z]+)([:<>])(.+)$/.exec(part) ?? [];
    const [, number, unit] = /^([\d.]+)([a-zµ]*)$/.exec(value ?? "") ?? [];
    if (sign === ":" && byText[key]) query.filters.push(byText[key](value));
    else if (key && sign !== ":" && AMOUNTS[key] && UNITS[unit]) {
      const limit = Number(number) * UNITS[unit];
      query.filters.push((node) =>
        sign === ">" ? AMOUNTS[key](node) > limit : AMOUNTS[key](node) < limit,
      );
    } else if (Object.hasOwn(byFlag, part)) query.filters.push(byFlag[part]);
    else if (/^[a-z]+[<>]/.test(part)) query.unknown.push(part);
    else query.words.push(part);
  }
  return query;
}

/**
 * Return the nodes that a query finds. Words are part of what the list of results shows of a node.
 *
 * @param {SceneIndex} sceneIndex
 * @param {Query} query
 * @param {(node: Node) => string} textOf in lower case
 * @returns {Set<number>} indices
 */
export function findNodes({ scene }, { words, filters }, textOf) {
  const found = [...scene.nodes].filter(
    (node) =>
      filters.every((filter) => filter(node)) && words.every((word) => textOf(node).includes(word)),
  );
  return new Set(found.map(({ index }) => index));
}
