// What lines cost: sums over the tree of calls.

import assert from "node:assert/strict";
import test from "node:test";
import {
  callCosts,
  callees,
  ownCost,
  ownParts,
  placeKey,
  stackOf,
  timeOf,
} from "../../assets/viewer/scene/source_line_costs.js";
import { peakIn } from "../../assets/viewer/scene/storage_holds.js";

/** A line that calls a helper twice, directly and through a recursive one. */
const FRAMES = [
  [-1, "train.py", 1],
  [0, "model.py", 5],
  [1, "model.py", 9],
  [2, "model.py", 5], // recursion
  [0, "model.py", 9],
  [-1, "train.py", 2],
].map(([parent, filename, lineno]) => ({
  parent,
  filename,
  lineno,
  function: "f",
}));

const storage = (call, nbytes, fields = {}) => ({
  call,
  nbytes,
  recomputed: 0,
  at_peak: 1,
  holds: [0, -1],
  ...fields,
});

const time = (call, origin, phase, ns, step = 0) => ({
  call,
  origin,
  phase,
  ns,
  step,
});

function scene() {
  return {
    summary: { warm_up: 0 },
    steps: [
      { number: 0, start_ns: 0, end_ns: 10 },
      { number: 1, start_ns: 10, end_ns: 20 },
    ],
    call_frames: FRAMES,
    counted_storages: [
      storage(1, 10),
      storage(2, 4, { recomputed: 1 }),
      storage(3, 1, { holds: [12, 15] }),
      storage(4, 100),
      storage(-1, 7, { at_peak: 0 }),
    ],
    call_times: [
      time(1, 1, "forward", 5),
      time(5, 1, "backward", 30),
      time(2, 2, "optimizer", 7),
      time(5, 2, "backward", 3, 1),
    ],
    nodes: [
      { call: 1, born_ns: 1, runs_ns: [] },
      { call: 3, born_ns: 11, runs_ns: [] },
    ],
  };
}

const line = (costs, filename, lineno) =>
  costs.lines.get(placeKey({ filename, lineno }));

test("outermost lines and what has no line add up to the total", () => {
  const costs = callCosts(scene());
  assert.deepEqual(costs.total, [118, 115, 4, 5, 33, 0, 7, 0, 2]);
  const first = line(costs, "train.py", 1).cost;
  const second = line(costs, "train.py", 2).cost;
  costs.total.forEach((value, at) =>
    assert.equal(first[at] + second[at] + costs.unknown[at], value),
  );
});

test("time of backward counts once, for the line of its node", () => {
  const costs = callCosts(scene());
  assert.deepEqual(line(costs, "train.py", 2).cost.slice(3, 5), [0, 0]);
  assert.deepEqual(line(costs, "train.py", 1).cost.slice(3, 5), [5, 33]);
});

test("a recursive line counts once", () => {
  const costs = callCosts(scene());
  const recursive = line(costs, "model.py", 5);
  assert.equal(recursive.cost[0], 11);
  assert.equal(recursive.frames.length, 1);
});

test("a line and its calls add up to what it costs", () => {
  const costs = callCosts(scene());
  const part = line(costs, "train.py", 1);
  const sum = ownCost(costs, part);
  const parts = callees(scene(), costs, part);
  for (const each of parts)
    each.cost.forEach((value, at) => (sum[at] += value));
  assert.deepEqual(sum, part.cost);
  assert.deepEqual(parts.map(({ lineno }) => lineno).sort(), [5, 9]);
});

test("lines by themselves add up to the total", () => {
  const costs = callCosts(scene());
  const parts = ownParts(scene(), costs);
  const total = costs.total.map(() => 0);
  for (const { cost } of parts)
    cost.forEach((value, at) => (total[at] += value));
  assert.deepEqual(total, costs.total);
});

test("one step counts alone", () => {
  const costs = callCosts(scene(), 1);
  // At its peak, it also holds what the step before saved.
  assert.deepEqual(costs.total, [1, 122, 0, 0, 3, 0, 0, 0, 1]);
});

test("a stack is innermost first", () => {
  assert.deepEqual(
    stackOf(scene(), 3).map(({ lineno }) => lineno),
    [5, 9, 5, 1],
  );
});

test("each step has its own peak, with what the steps before it hold", () => {
  const steps = [0, 1, 2].map((number) => ({
    number,
    start_ns: 10 * number,
    end_ns: 10 * (number + 1),
  }));
  const counted_storages = [
    storage(1, 100, { holds: [1, 5] }), // the peak of the recording
    storage(2, 1, { holds: [2, 15], at_peak: 1 }),
    storage(3, 20, { holds: [11, 14], at_peak: 0 }),
    storage(4, 30, { holds: [22, 25], at_peak: 0 }),
    storage(4, 7, { holds: [25, 28], at_peak: 0 }),
  ];
  const made = { ...scene(), steps, counted_storages };
  const held = steps.map((_, step) => callCosts(made, step).total[1]);
  assert.deepEqual(held, [101, 21, 30]);
  steps.forEach((step, at) =>
    assert.equal(held[at], peakIn(made, step).nbytes),
  );
  assert.deepEqual(line(callCosts(made, 2), "model.py", 9).cost[1], 30);
});

test("times of all steps leave out a warm-up, and those of a step do not", () => {
  const warm = { ...scene(), summary: { warm_up: 9 } };
  const timeIn = (each, step) => timeOf(callCosts(each, step).total);
  const cold = { ...warm, summary: { warm_up: 0 } };
  assert.ok(timeIn(cold, 0) > 0);
  assert.equal(timeIn(warm, -1), timeIn(cold, -1) - timeIn(cold, 0));
  assert.equal(timeIn(warm, 0), timeIn(cold, 0));
  assert.deepEqual(
    callCosts(warm).total.slice(0, 3),
    callCosts(cold).total.slice(0, 3),
  );
});
