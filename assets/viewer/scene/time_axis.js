// @ts-check
/** Two ways to lay time out: as it passed, or one step for everything that happened. */

import { choice } from "../dom.js";

/** @typedef {"time" | "events"} Axis */

/**
 * Times and places on an axis; both grow together.
 *
 * @typedef {object} Clock
 * @property {Axis} axis
 * @property {number} least the shortest stretch that is worth seeing
 * @property {(time: number) => number} at
 * @property {(place: number) => number} timeAt
 */

/** @type {Clock} */
const PASSING = { axis: "time", least: 1000, at: (time) => time, timeAt: (place) => place };

/** @type {WeakMap<import("./scene_index.js").Atlas, Clock>} */
const counting = new WeakMap();

/**
 * The clock of the axis that the reader chose.
 *
 * @param {import("../store.js").Store} store
 * @returns {Clock}
 */
export function clockOf({ axis, atlas }) {
  if (axis === "time") return PASSING;
  const clock = counting.get(atlas) ?? countingClock(timesOf(atlas));
  counting.set(atlas, clock);
  return clock;
}

/**
 * A clock that counts: the nth of `times` stands at n, and what lies between two lies between.
 *
 * @param {number[]} times in order, each once
 * @returns {Clock}
 */
export function countingClock(times) {
  const last = times.length - 1;
  return {
    axis: "events",
    least: Math.min(8, Math.max(1, last)),
    at(time) {
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
    timeAt(place) {
      const low = Math.max(0, Math.min(last - 1, Math.floor(place)));
      const high = Math.min(last, low + 1);
      const part = Math.max(0, Math.min(1, place - low));
      return times[low] + part * (times[high] - times[low]);
    },
  };
}

/**
 * All times at which something happened, in order.
 *
 * @param {import("./scene_index.js").Atlas} atlas
 * @returns {number[]}
 */
function timesOf({ scene, end }) {
  const times = new Set([0, end]);
  for (const { born_ns, runs_ns } of scene.nodes) {
    times.add(born_ns);
    for (const time of runs_ns) times.add(time);
  }
  for (const { start_ns, end_ns } of scene.spans) times.add(start_ns).add(end_ns);
  for (const { time_ns } of scene.moments) times.add(time_ns);
  return [...times].filter((time) => time >= 0 && time <= end).sort((a, b) => a - b);
}

/**
 * Buttons that choose the axis, in step with those of other views.
 *
 * @param {import("../store.js").Store} store
 * @returns {HTMLElement}
 */
export function axisChoice(store) {
  const choose = (/** @type {string} */ name) => store.layOut(/** @type {Axis} */ (name));
  const buttons = choice(["time", "events"], store.axis, choose);
  buttons.title = "Lay out by time, or one step for everything that happened";
  store.subscribe((change) => {
    if (change !== "axis") return;
    for (const each of buttons.children) {
      each.setAttribute("aria-pressed", String(each.textContent === store.axis));
    }
  });
  return buttons;
}
