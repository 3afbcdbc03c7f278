// The time axis with short idle intervals.

import assert from "node:assert/strict";
import test from "node:test";

import {
  compressedAxis,
  proportionalAxis,
} from "../../assets/viewer/scene/time_axis.js";
import { idleTimes } from "../../assets/viewer/scene/idle_and_compile_times.js";

test("an axis without idle intervals is proportional", () => {
  const { positionOf, timeAt } = compressedAxis([], 100);
  assert.deepEqual([0, 40, 100].map(positionOf), [0, 40, 100]);
  assert.deepEqual([0, 40, 100].map(timeAt), [0, 40, 100]);
});

test("an idle interval takes a fiftieth of the busy time", () => {
  const { positionOf } = compressedAxis([100, 9_100], 9_200); // 200 busy
  assert.deepEqual([0, 100, 9_100, 9_200].map(positionOf), [0, 100, 104, 204]);
});

test("both directions are inverse and monotonic", () => {
  const { positionOf, timeAt } = compressedAxis([0, 500, 700, 5_000], 5_500);
  let last = -1;
  for (let time = 0; time <= 5_500; time += 50) {
    const position = positionOf(time);
    assert.ok(position > last);
    assert.ok(Math.abs(timeAt(position) - time) < 1e-6);
    last = position;
  }
});

/** Return a scene with idle intervals and compilations, each with start and end. */
function recorded(idle_ns, compiles) {
  const spans = compiles.map(([start_ns, end_ns, depth = 0]) => ({
    kind: "compile",
    start_ns,
    end_ns,
    depth,
  }));
  return { summary: { idle_ns }, spans };
}

test("time in which something compiled is not idle", () => {
  const idle = (...compiles) => idleTimes(recorded([100, 900], compiles));
  assert.deepEqual(idle(), [[100, 900]]);
  assert.deepEqual(idle([0, 50]), [[100, 900]]);
  assert.deepEqual(idle([50, 300], [60, 200, 1], [400, 500]), [
    [300, 400],
    [500, 900],
  ]);
  assert.deepEqual(idle([0, 1_000]), []);
});

test("a short interval names what it was spent on", () => {
  const scene = recorded([0, 100, 200, 900], [[250, 900]]);
  assert.deepEqual(proportionalAxis({ scene, end: 1_000 }).causes, [
    "100 ns idle",
    "650 ns compiling · 50 ns idle",
  ]);
});

test("compilation is short wherever it is, also in a backward", () => {
  const scene = recorded(
    [0, 1_000],
    [
      [500, 1_000],
      [2_000, 9_000],
      [3_000, 4_000, 1],
    ],
  );
  const axis = proportionalAxis({ scene, end: 10_000 });
  assert.deepEqual(axis.idle, [0, 1_000, 2_000, 9_000]);
  assert.ok(axis.positionOf(9_000) - axis.positionOf(2_000) < 100);
  assert.equal(axis.causes[1], "7 µs compiling");
});
