// @ts-check
/** Positions on a time axis: proportional to time, or one step for each event. */

/** @typedef {"time" | "events"} AxisKind */

/**
 * Maps times to positions and back. Both directions are monotonic.
 *
 * @typedef {object} TimeAxis
 * @property {AxisKind} kind
 * @property {number} minLength the shortest range worth zooming to, in positions
 * @property {(time: number) => number} positionOf
 * @property {(position: number) => number} timeAt
 */

/** @type {TimeAxis} */
const PROPORTIONAL = {
  kind: "time",
  minLength: 1000,
  positionOf: (time) => time,
  timeAt: (position) => position,
};

/** @type {WeakMap<import("./scene_index.js").SceneIndex, TimeAxis>} */
const eventAxes = new WeakMap();

/**
 * Return the axis of the kind that the user chose.
 *
 * @param {import("../store.js").Store} store
 * @returns {TimeAxis}
 */
export function timeAxis({ axis, sceneIndex }) {
  if (axis === "time") return PROPORTIONAL;
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
