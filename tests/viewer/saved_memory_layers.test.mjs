// The picture of saved memory passes through the peak of each part and of each step.

import assert from "node:assert/strict";
import test from "node:test";
import {
  changeTimes,
  stackLayers,
} from "../../assets/viewer/scene/saved_memory_layers.js";
import { peakIn } from "../../assets/viewer/scene/storage_holds.js";

const COUNT = 3000;
/** Tolerance: parts of the test do not begin where parts of the picture do. */
const AROUND = 60;

/** Short holds one after another, each of another size, above one that stays. */
function store(random) {
  const sizes = Array.from({ length: COUNT }, () =>
    Math.round(1 + 1000 * random() ** 9),
  );
  const rows = sizes.map((nbytes, at) => [nbytes, [10 * at + 1, 10 * at + 5]]);
  rows.push([5000, [0, -1]]);
  const counted_storages = rows.map(([nbytes, holds], at) => ({
    storage_id: at,
    module: `h.${at % 4}`,
    nbytes,
    holds,
  }));
  const end = 10 * COUNT;
  const steps = [0, 1, 2].map((number) => ({
    number,
    start_ns: (number * end) / 3,
    end_ns: ((number + 1) * end) / 3,
  }));
  const summary = { older_nbytes: 0, older_steps: 0 };
  return {
    scene: { counted_storages, steps, summary },
    sceneIndex: { end },
  };
}

/** A repeatable sequence of numbers from 0 to 1. */
function sequence(seed) {
  let state = seed;
  return () => {
    state = (state * 48271) % 2147483647;
    return state / 2147483647;
  };
}

for (const seed of [1, 2, 3, 4, 5]) {
  test(`the layers reach the peak of each step and of each part (${seed})`, () => {
    const made = store(sequence(seed));
    const { scene, sceneIndex } = made;
    const times = changeTimes(made);
    const layers = stackLayers(made, times, "module");
    const heights = times.map((_, at) =>
      layers.reduce((sum, { values }) => sum + values[at], 0),
    );
    const highest = ({ start_ns, end_ns }, around = 0) =>
      Math.max(
        ...heights.filter(
          (_, at) =>
            start_ns - around <= times[at] && times[at] <= end_ns + around,
        ),
      );
    assert.ok(times.length <= 1300);
    const parts = Array.from({ length: 100 }, (_, at) => ({
      start_ns: (at * sceneIndex.end) / 100,
      end_ns: ((at + 1) * sceneIndex.end) / 100 - 1,
    }));
    for (const step of scene.steps) {
      const { nbytes, time } = peakIn(scene, step);
      assert.equal(highest(step), nbytes);
      assert.ok(times.includes(time));
    }
    for (const part of parts)
      assert.ok(highest(part, AROUND) >= peakIn(scene, part).nbytes);
  });
}
