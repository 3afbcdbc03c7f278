// The time of phases, and the sentence on where the time goes.

import assert from "node:assert/strict";
import test from "node:test";

import {
  betweenOps,
  leadOf,
  mostlyInStep,
  phaseTimes,
  stoppedBackward,
  timeSentence,
} from "../../assets/viewer/scene/phase_times.js";
import { timedSteps } from "../../assets/viewer/scene/step_of_time_or_node.js";

const ms = 1e6;

/** Return the times of 100 ms: forward 40 (10 of them idle), backward 30 (10 recomputed), optimizer 10. */
function times(range, ...step) {
  const span = (kind, start, end, depth = 0) => ({
    kind,
    depth,
    start_ns: start * ms,
    end_ns: end * ms,
  });
  const scene = {
    spans: [
      span("forward", 10, 50),
      span("module", 10, 50),
      span("backward", 50, 80),
      span("backward", 55, 60, 1),
      span("recompute", 60, 70),
      span("optimizer", 85, 95),
    ],
    summary: { idle_ns: [20 * ms, 30 * ms] },
    call_times: [
      { phase: "forward", step: 0, ns: 25 * ms },
      { phase: "backward", step: 0, ns: 15 * ms },
      { phase: "recompute", step: 0, ns: 9 * ms },
      { phase: "optimizer", step: 0, ns: 4 * ms },
    ],
  };
  return phaseTimes({ scene }, range, ...step);
}

test("phases, what is outside of them and idle time add up to the duration", () => {
  const { active, idle, phases } = times([0, 100 * ms], -1);
  assert.deepEqual([active, idle], [90 * ms, 10 * ms]);
  const totals = Object.fromEntries(
    phases.map(({ name, total }) => [name, total / ms]),
  );
  assert.deepEqual(totals, {
    forward: 30,
    backward: 30,
    optimizer: 10,
    outside: 20,
  });
  assert.equal(
    phases.reduce((sum, { total }) => sum + total, 0),
    active,
  );
});

test("a phase is its ops, its recomputations and the time between", () => {
  const [forward, backward] = times([0, 100 * ms], -1).phases;
  assert.deepEqual(
    [forward.ops, forward.recomputed, betweenOps(forward)],
    [25 * ms, 0, 5 * ms],
  );
  assert.equal(backward.recomputed, 10 * ms);
  assert.equal(betweenOps(backward), 5 * ms);
});

test("of a range that is no step, ops are not known", () => {
  const { active, phases } = times([45 * ms, 65 * ms]);
  assert.equal(active, 20 * ms);
  assert.deepEqual(
    phases.map(({ total, ops }) => [total / ms, ops]),
    [
      [5, null],
      [15, null],
      [0, null],
      [0, null],
    ],
  );
  assert.equal(phases[1].recomputed, 5 * ms);
});

test("the sentence names the longest phase first", () => {
  assert.equal(
    timeSentence(times([0, 100 * ms], -1)),
    "Forward takes 33 % of 90 ms; backward 33 %, 10 ms of it to recompute checkpoints, " +
      "optimizer 11 %, outside 22 %.",
  );
});

test("compilation is no time of a phase in the sentence", () => {
  const phase = (name, total, compiled) => ({ name, total, compiled });
  const found = {
    active: 100,
    phases: [
      phase("forward", 90, 85),
      phase("backward", 10, 4),
      phase("outside", 0, 0),
    ],
  };
  assert.equal(
    timeSentence(found),
    "Compiling takes 89 % of 100 ns; backward 6 %, forward 5 %.",
  );
  assert.equal(
    timeSentence(found, "net.py:3 takes 5 %"),
    "net.py:3 takes 5 % of 100 ns.",
  );
});

test("the sentence names the largest row of the table, whatever it is", () => {
  const row = (lineno, time, label = `net.py:${lineno}`) => ({
    ...{ label, lineno, time, filename: lineno ? "net.py" : "" },
  });
  const textOf = (rows, compiled = 0) => {
    const phase = { name: "forward", total: 100, compiled };
    const found = { active: 100, phases: [phase] };
    const { lead, more } = leadOf(found, rows);
    return timeSentence(found, lead, more);
  };
  assert.equal(
    textOf([row(15, 15), row(16, 8)]),
    "“between ops” takes 77 % of 100 ns; of lines, net.py:15 most: 15 %.",
  );
  assert.equal(textOf([row(15, 60)]), "net.py:15 takes 60 % of 100 ns.");
  assert.equal(
    textOf([row(0, 70, "optimizer"), row(16, 8)]),
    "“optimizer” takes 70 % of 100 ns; of lines, net.py:16 most: 8 %.",
  );
  assert.equal(
    textOf([row(0, 97, "no line"), row(16, 3)]),
    "“no line” takes 97 % of 100 ns.",
  );
  assert.equal(
    textOf([row(0, 90, "compile 0/0"), row(15, 10)], 90),
    "Compiling takes 90 % of 100 ns; forward 10 %.",
  );
});

test("a backward that stopped has its own time, not that of all steps", () => {
  const backward = (start_ns, end_ns) => ({
    kind: "backward",
    depth: 0,
    start_ns: start_ns * ms,
    end_ns: end_ns * ms,
  });
  const compile = { ...backward(55, 60), kind: "compile" };
  const scene = {
    nodes: [{ state: "failed", runs_ns: [20 * ms, 25 * ms, 65 * ms, -1] }],
    spans: [backward(10, 30), backward(50, 70), compile],
    steps: [
      { number: 4, start_ns: 0, end_ns: 40 * ms },
      { number: 5, start_ns: 40 * ms, end_ns: 100 * ms },
    ],
    summary: { raised: "RuntimeError: stopped" },
    call_times: [],
  };
  const textOf = (...range) => stoppedBackward({ scene }, range, -1);
  assert.equal(textOf(0, 100 * ms), "Backward of step 5 stopped after 15 ms. ");
  assert.equal(textOf(0, 40 * ms), "");
});

test("a line that stalls in one step has that step in its sentence", () => {
  const times = (...ns) => ({
    steps: ns.map((_, number) => ({ number })),
    call_frames: [{ filename: "net.py", lineno: 13 }],
    call_times: ns.map((each, step) => ({ origin: 0, step, ns: each * ms })),
  });
  const line = { filename: "net.py", lineno: 13 };
  const stalled = mostlyInStep(times(2, 40, 3), { ...line, time: 45 * ms });
  assert.equal(stalled, "; 40 ms in step 1 alone");
  assert.equal(mostlyInStep(times(2, 4, 3), { ...line, time: 9 * ms }), "");
});

test("the time of all steps leaves a warm-up out", () => {
  const step = (start, end) => ({ start_ns: start * ms, end_ns: end * ms });
  const scene = {
    ...{ spans: [], summary: { warm_up: 9 } },
    steps: [step(0, 90), step(90, 95), step(95, 100)],
    call_times: [0, 1, 2].map((own) => ({
      ...{ phase: "outside", step: own, ns: (own ? 2 : 50) * ms },
    })),
  };
  const opsOf = (shown) => {
    const { range, step: timed } = timedSteps({ scene, end: 100 * ms }, shown);
    const { active, phases } = phaseTimes({ scene }, range, timed);
    return [active / ms, phases.at(-1).ops / ms];
  };
  assert.deepEqual([-1, 0, 1].map(opsOf), [
    [10, 4],
    [90, 50],
    [5, 2],
  ]);
  scene.summary.warm_up = 0;
  assert.deepEqual(opsOf(-1), [100, 54]);
});
