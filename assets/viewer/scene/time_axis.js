// @ts-check
/** Positions on a time axis: in proportion to time, idle or compiling shortened; or by events. */

import { dotted, formatDuration } from "./format_numbers_and_names.js";
import { compileTimes, overlapOf } from "./idle_and_compile_times.js";

/** @typedef {"time" | "events"} AxisKind */

/**
 * Maps times to positions and back. Both directions are monotonic.
 *
 * @typedef {object} TimeAxis
 * @property {AxisKind} kind
 * @property {number} minLength the shortest range worth zooming to, in positions
 * @property {(time: number) => number} positionOf
 * @property {(position: number) => number} timeAt
 * @property {number[]} idle start and end of each interval that is drawn short
 * @property {string[]} [causes] what each of them was spent on: "2.96 s compiling, 128 ms idle"
 */

/** Share of the axis that a long idle interval takes. */
const IDLE_SHARE = 0.02;

/** @type {WeakMap<import("./scene_index.js").SceneIndex, TimeAxis>} */
const timeAxes = new WeakMap();

/**
 * Return an axis proportional to time on which long idle intervals are short.
 *
 * @param {number[]} idle start and end of each interval, ascending
 * @param {number} end of the recording
 * @returns {TimeAxis}
 */
export function compressedAxis(idle, end) {
  let busy = end;
  for (let i = 0; i < idle.length; i += 2) busy -= idle[i + 1] - idle[i];
  const short = Math.max(1, busy * IDLE_SHARE);
  /** @type {[time: number, position: number][]} */
  const knots = [[0, 0]];
  const add = (/** @type {number} */ time, /** @type {number} */ length) =>
    knots.push([time, knots[knots.length - 1][1] + length]);
  let last = 0;
  for (let i = 0; i < idle.length; i += 2) {
    if (idle[i] > last) add(idle[i], idle[i] - last);
    add(idle[i + 1], Math.min(short, idle[i + 1] - idle[i]));
    last = idle[i + 1];
  }
  if (end > last) add(end, end - last);
  const map =
    (/** @type {0 | 1} */ from, /** @type {0 | 1} */ to) => (/** @type {number} */ value) => {
      let at = 1;
      while (at < knots.length - 1 && knots[at][from] < value) at++;
      if (knots.length < 2) return value;
      const [a, b] = [knots[at - 1], knots[at]];
      return a[to] + ((value - a[from]) / (b[from] - a[from] || 1)) * (b[to] - a[to]);
    };
  return { kind: "time", minLength: 1000, positionOf: map(0, 1), timeAt: map(1, 0), idle };
}

/**
 * Return the axis of times. Compilations are short wherever they are, as in a backward.
 *
 * @param {import("./scene_index.js").SceneIndex} sceneIndex
 * @returns {TimeAxis}
 */
export function proportionalAxis(sceneIndex) {
  const { idle_ns: idle } = sceneIndex.scene.summary;
  const known = timeAxes.get(sceneIndex);
  if (known) return known;
  const compiles = compileTimes(sceneIndex.scene);
  const axis = compressedAxis(joined([...pairs(idle ?? []), ...compiles]), sceneIndex.end);
  axis.causes = axis.idle.flatMap((start, at) => {
    const end = axis.idle[at + 1];
    if (at % 2) return [];
    const compiling = overlapOf(compiles, start, end);
    const rest = end - start - compiling;
    return dotted([
      compiling && `${formatDuration(compiling)} compiling`,
      100 * rest > end - start && `${formatDuration(rest)} idle`,
    ]);
  });
  timeAxes.set(sceneIndex, axis);
  return axis;
}

/**
 * @param {number[]} times
 * @returns {import("./idle_and_compile_times.js").Intervals}
 */
const pairs = (times) =>
  times.flatMap((start, at) =>
    at % 2 ? [] : [/** @type {[number, number]} */ ([start, times[at + 1]])],
  );

/**
 * @param {import("./idle_and_compile_times.js").Intervals} intervals that may overlap
 * @returns {number[]} start and end of each interval that something covers, ascending
 */
function joined(intervals) {
  /** @type {number[]} */
  const times = [];
  for (const [start, end] of intervals.sort((a, b) => a[0] - b[0])) {
    const last = times.length - 1;
    if (last > 0 && start <= times[last]) times[last] = Math.max(times[last], end);
    else times.push(start, end);
  }
  return times;
}

/** @type {WeakMap<import("./scene_index.js").SceneIndex, TimeAxis>} */
const eventAxes = new WeakMap();

/**
 * @param {import("./scene_index.js").SceneIndex} sceneIndex
 * @param {AxisKind} kind
 * @returns {TimeAxis}
 */
export function timeAxis(sceneIndex, kind) {
  if (kind === "time") return proportionalAxis(sceneIndex);
  const events = eventAxes.get(sceneIndex) ?? eventAxis(eventTimes(sceneIndex));
  eventAxes.set(sceneIndex, events);
  return events;
}

/**
 * Return an axis with the nth time at position n, interpolated linearly in between.
 *
 * @param {number[]} times ascending, without duplicates
 * @returns {TimeAxis}
 */
export function eventAxis(times) {
  const last = times.length - 1;
  return {
    kind: "events",
    idle: [],
    minLength: Math.min(8, Math.max(1, last)),
    positionOf(time) {
      if (time <= times[0]) return 0;
      if (time >= times[last]) return last;
      let [low, high] = [0, last];
      while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (times[middle] <= time) low = middle;
        else high = middle;
      }
      return low + (time - times[low]) / (times[high] - times[low]);
    },
    timeAt(position) {
      const low = Math.max(0, Math.min(last - 1, Math.floor(position)));
      const high = Math.min(last, low + 1);
      const part = Math.max(0, Math.min(1, position - low));
      return times[low] + part * (times[high] - times[low]);
    },
  };
}

/**
 * Return the times of all events of the recording.
 *
 * @param {import("./scene_index.js").SceneIndex} sceneIndex
 * @returns {number[]} ascending
 */
function eventTimes({ scene, end }) {
  const times = new Set([0, end]);
  for (const { born_ns, runs_ns } of scene.nodes) {
    times.add(born_ns);
    for (const time of runs_ns) times.add(time);
  }
  for (const { start_ns, end_ns } of scene.spans) times.add(start_ns).add(end_ns);
  for (const { time_ns } of scene.storage_events) times.add(time_ns);
  return [...times].filter((time) => time >= 0 && time <= end).sort((a, b) => a - b);
}
