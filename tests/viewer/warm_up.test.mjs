// A first step that takes far longer than the others is warm-up.

import assert from "node:assert/strict";
import test from "node:test";

import {
  warmUp,
  warmUpText,
} from "../../assets/viewer/scene/idle_and_compile_times.js";

/** Return a scene with steps of these lengths in milliseconds. */
function scene(lengths, { first = 0, idle = [] } = {}) {
  let end = 0;
  const steps = lengths.map((length, at) => {
    const start_ns = end;
    end += length * 1e6;
    return { number: first + at, start_ns, end_ns: end };
  });
  return { steps, spans: [], summary: { idle_ns: idle } };
}

test("a first step eight times as long as the others is warm-up", () => {
  assert.equal(
    warmUpText(scene([80, 9, 10])),
    "step 0 is warm-up: 8.0× as long as any other step",
  );
});

test("a first step that is a little longer is none", () => {
  assert.equal(warmUp(scene([15, 9, 10])), 0);
  assert.equal(warmUpText(scene([15, 9, 10])), "");
});

test("with one other step, either may be unusual", () => {
  assert.equal(warmUp(scene([80, 10])), 0);
});

test("the first step that was kept of a longer program is none", () => {
  assert.equal(warmUp(scene([80, 10, 10], { first: 7 })), 0);
});

test("idle time is not warm-up", () => {
  assert.equal(warmUp(scene([80, 10, 10], { idle: [0, 70e6] })), 0);
});
