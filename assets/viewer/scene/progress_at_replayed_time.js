// @ts-check
/**
 * The progress at a replayed time: the node at work, the bytes held, the share of a group that is
 * done, the gradients on their way.
 */

import { heldCurve, heldIn, lastAt } from "./curve_of_bytes_held.js";
import { nodesWithin } from "./scene_index.js";

/** @typedef {import("./scene_index.js").SceneIndex} SceneIndex */

/**
 * @typedef {object} Film
 * @property {import("./curve_of_bytes_held.js").HeldCurve} held of all storages
 * @property {number[]} workTimes at which a forward op or a node starts
 * @property {number[]} workNodes the node of each
 * @property {Float64Array} sent by edge, when its source has run
 * @property {Float64Array} received by edge, when its target starts
 * @property {Map<number, {born: number[], ran: number[]}>} groups times of the nodes of groups
 */

/** @type {WeakMap<SceneIndex, Film>} */
const films = new WeakMap();

/**
 * @param {SceneIndex} sceneIndex
 * @returns {Film}
 */
function filmOf(sceneIndex) {
  let film = films.get(sceneIndex);
  if (!film) films.set(sceneIndex, (film = makeFilm(sceneIndex.scene)));
  return film;
}

/**
 * @param {import("../types.js").Scene} scene
 * @returns {Film}
 */
function makeFilm({ counted_storages: storages, nodes, edges }) {
  /** @type {[time: number, node: number][]} */
  const work = [];
  for (const { index, born_ns, runs_ns } of nodes) {
    if (born_ns >= 0) work.push([born_ns, index]);
    for (let at = 0; at < runs_ns.length; at += 2) work.push([runs_ns[at], index]);
  }
  work.sort((a, b) => a[0] - b[0]);
  const sent = new Float64Array(edges.length).fill(Infinity);
  const received = new Float64Array(edges.length).fill(Infinity);
  edges.forEach(({ source, target }, at) => {
    const end = nodes[source].runs_ns[1] ?? -1;
    if (end >= 0) sent[at] = end;
    received[at] = nodes[target].runs_ns[0] ?? Infinity;
  });
  return {
    held: heldCurve(storages),
    workTimes: work.map(([time]) => time),
    workNodes: work.map(([, node]) => node),
    sent,
    received,
    groups: new Map(),
  };
}

/**
 * @param {SceneIndex} sceneIndex
 * @param {number} time
 * @returns {number} bytes that saved tensors hold, those of steps no longer shown included
 */
export function heldAt(sceneIndex, time) {
  return heldIn(filmOf(sceneIndex).held, time) + sceneIndex.scene.summary.older_nbytes;
}

/**
 * @param {SceneIndex} sceneIndex
 * @param {number} time
 * @returns {number} the node whose forward op or which itself started last, -1 before the first
 */
export function workAt(sceneIndex, time) {
  const { workTimes, workNodes } = filmOf(sceneIndex);
  return workNodes[lastAt(workTimes, time)] ?? -1;
}

/**
 * Return the times at which something of a unit begins: a node, a line or a module.
 *
 * @param {SceneIndex} sceneIndex
 * @param {"node" | "line" | "module"} unit
 * @returns {number[]}
 */
export function unitTimes(sceneIndex, unit) {
  const { workTimes, workNodes } = filmOf(sceneIndex);
  const { nodes } = sceneIndex.scene;
  const keyOf = (/** @type {number} */ index) => {
    const { filename, lineno, module } = nodes[index];
    return unit === "node" ? index : unit === "line" ? `${filename}:${lineno}` : module;
  };
  return workTimes.filter((_, at) => !at || keyOf(workNodes[at]) !== keyOf(workNodes[at - 1]));
}

/**
 * Return the share of a group that is done: of its forward ops before its backward, then of its
 * nodes.
 *
 * @param {SceneIndex} sceneIndex
 * @param {number} group
 * @param {number} time
 * @returns {{share: number, backward: boolean}}
 */
export function doneAt(sceneIndex, group, time) {
  const { groups } = filmOf(sceneIndex);
  let times = groups.get(group);
  if (!times) {
    const inside = nodesWithin(sceneIndex, group).map((node) => sceneIndex.scene.nodes[node]);
    const sorted = (/** @type {number[]} */ values) =>
      values.filter((value) => value >= 0).sort((a, b) => a - b);
    times = {
      born: sorted(inside.map(({ born_ns }) => born_ns)),
      ran: sorted(inside.map(({ runs_ns }) => runs_ns[1] ?? -1)),
    };
    groups.set(group, times);
  }
  const ran = lastAt(times.ran, time) + 1;
  const backward = ran > 0;
  const [count, all] = backward
    ? [ran, times.ran.length]
    : [lastAt(times.born, time) + 1, times.born.length];
  return { share: all ? count / all : 0, backward };
}

/**
 * Return the share of the way of a gradient that one of some edges carries.
 *
 * @param {SceneIndex} sceneIndex
 * @param {ArrayLike<number>} edges
 * @param {number} time
 * @returns {number} from 0 to 1, -1 if no gradient is on its way
 */
export function onItsWay(sceneIndex, edges, time) {
  const { sent, received } = filmOf(sceneIndex);
  for (let at = 0; at < edges.length; at++) {
    const [start, end] = [sent[edges[at]], received[edges[at]]];
    if (start <= time && time < end) return end < Infinity ? (time - start) / (end - start) : 0;
  }
  return -1;
}
