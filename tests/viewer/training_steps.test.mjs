// Steps: what belongs to which, their peaks, and two of them compared.

import assert from "node:assert/strict";
import test from "node:test";
import { timeBound } from "../../assets/viewer/scene/graph_colorings.js";
import { profileRange } from "../../assets/viewer/scene/range_profile.js";
import {
  callCosts,
  ownParts,
  timeOf as sourceTimeOf,
} from "../../assets/viewer/scene/source_line_costs.js";
import { isHeldAt, peakIn } from "../../assets/viewer/scene/storage_holds.js";
import { stepAt } from "../../assets/viewer/scene/step_of_time_or_node.js";
import {
  figuresOf,
  livePeak,
} from "../../assets/viewer/scene/figures_of_step.js";
import { compareSteps } from "../../assets/viewer/views/compare/step_comparison_rows.js";

const STEPS = [
  { number: 3, start_ns: 0, end_ns: 10 },
  { number: 4, start_ns: 10, end_ns: 20 },
];

const storage = (nbytes, holds, fields = {}) => ({
  nbytes,
  holds,
  recomputed: 0,
  module: "net.h.0",
  filename: "net.py",
  lineno: 7,
  ...fields,
});

const node = (index, born_ns, module = "net.h.0") => ({
  index,
  born_ns,
  runs_ns: [],
  module,
  filename: "net.py",
  lineno: 7,
  forward_ns: 2,
  duration_ns: 3,
});

test("a time belongs to the step that ends next; later ones to the last", () => {
  assert.deepEqual(
    [0, 10, 11, 20, 25].map((time) => stepAt({ steps: STEPS }, time)),
    [0, 0, 1, 1, 1],
  );
});

test("a peak counts what is held from before the range, and releases before saves", () => {
  const counted_storages = [
    storage(5, [2, -1]),
    storage(3, [12, 14, 16, 18]),
    storage(4, [14, 15]),
    storage(9, [1, 9]),
  ];
  assert.deepEqual(peakIn({ counted_storages }, STEPS[1]), {
    nbytes: 9,
    time: 14,
  });
  assert.equal(isHeldAt(counted_storages[1], 15), false);
  assert.equal(isHeldAt(counted_storages[1], 17), true);
});

test("two steps are compared by module and line; numbered modules are merged", () => {
  const scene = {
    steps: STEPS,
    summary: { older_nbytes: 0, idle_ns: [16, 18] },
    nodes: [node(0, 1), node(1, 11), node(2, 12, "net.h.1")],
    counted_storages: [storage(8, [1, 5]), storage(16, [11, 15])],
    spans: [
      { kind: "forward", depth: 0, start_ns: 1, end_ns: 4 },
      { kind: "module", depth: 1, start_ns: 1, end_ns: 4 },
      { kind: "forward", depth: 0, start_ns: 11, end_ns: 15 },
      { kind: "forward", depth: 0, start_ns: 15, end_ns: 20 },
    ],
    call_frames: [
      { filename: "net.py", lineno: 7, parent: -1 },
      { filename: "train.py", lineno: 3, parent: -1 },
    ],
    call_times: [
      { origin: 0, module: "net.h.0", phase: "forward", step: 0, ns: 2 },
      { origin: 0, module: "net.h.0", phase: "backward", step: 0, ns: 3 },
      { origin: 0, module: "net.h.0", phase: "forward", step: 1, ns: 6 },
      { origin: 0, module: "net.h.1", phase: "backward", step: 1, ns: 5 },
      { origin: -1, module: "", phase: "forward", step: 1, ns: 1 },
      { origin: 1, module: "", phase: "optimizer", step: 1, ns: 9 },
    ],
  };
  const source = new Map([["net.py", new Map([[7, "  y = f(x)"]])]]);
  const index = { scene, source, end: 20 };
  const [total, ...rows] = compareSteps(index, 0, 1);
  assert.deepEqual(total.nodes, [1, 2]);
  assert.deepEqual(total.saved, [8, 16]);
  assert.deepEqual(total.at_peak, [8, 16]);
  assert.deepEqual(total.time_ns, [5, 21]);
  const timeOf = (kind, label) =>
    rows.find((row) => row.merged && row.kind === kind && row.label === label)
      .time_ns;
  assert.deepEqual(timeOf("module", "h.*"), [5, 11]); // with ops that have no node
  // A line has the same time in the source view, in the profile and here.
  const names = { "net.py:7": "y = f(x)" };
  for (const step of [0, 1]) {
    const costs = callCosts(scene, step);
    const profile = profileRange(index, [0, 20], "line", step);
    const labels = profile.map(({ label }) => label);
    assert.deepEqual(
      labels,
      [["net.py:7"], ["net.py:7", "train.py:3", "no line"]][step],
    );
    for (const { label, filename, lineno, time } of profile) {
      const part = ownParts(scene, costs).find(
        (each) => each.filename === filename && each.lineno === lineno,
      );
      assert.equal(timeOf("line", names[label] ?? label)[step], time);
      assert.equal(sourceTimeOf(part.cost), time);
    }
  }
  const phases = rows.filter(({ kind }) => kind === "phase");
  assert.deepEqual(
    phases.map(({ label, time_ns, steps }) => [label, time_ns, steps]),
    [["forward", [3, 7], [1, 1]]],
  );
  const merged = rows.filter(({ merged, kind }) => merged && kind !== "phase");
  assert.deepEqual(
    merged.map(({ kind, label, nodes, depth }) => [kind, label, nodes, depth]),
    [
      ["module", "net", [1, 2], 1],
      ["module", "h.*", [1, 2], 2],
      ["line", "y = f(x)", [1, 2], 3],
      ["line", "no line", [0, 0], 1],
      ["line", "train.py:3", [0, 0], 1],
    ],
  );
  const added = rows.find(
    ({ merged, module }) => !merged && module === "net.h.1",
  );
  assert.equal(added.status, "added");
});

test("a storage that both steps save counts in both", () => {
  const shared = storage(8, [1, 9, 11, 19]);
  const scene = {
    steps: STEPS,
    nodes: [],
    spans: [],
    call_frames: [],
    call_times: [],
    counted_storages: [shared, storage(2, [1, 15])],
    summary: { older_nbytes: 0 },
  };
  const [total] = compareSteps({ scene, source: new Map() }, 0, 1);
  assert.deepEqual(total.saved, [10, 8]);
  const savedIn = (step) => callCosts(scene, step).total[0];
  assert.deepEqual([savedIn(0), savedIn(1), savedIn(-1)], [10, 8, 10]);
});

test("times of one step are never a difference", () => {
  const rows = (count) => [
    { kind: "total", time_ns: [900, 900], steps: [count, count] },
    { kind: "phase", steps: [count, count] },
  ];
  assert.equal(timeBound(rows(1))([100, 900]), false);
  assert.equal(timeBound(rows(3))([100, 900]), true);
});

test("the header has all idle time but that of older steps, and none if the step failed", () => {
  const idle = (number, error_type = "") =>
    figuresOf({
      scene: {
        steps: [{ number, start_ns: 0, end_ns: 1_000 }],
        spans: [],
        live_points: [],
        summary: {
          peak_nbytes: 0,
          older_nbytes: 0,
          end_ns: 1_000,
          error_type,
          idle_ns: [0, 300, 500, 600],
        },
      },
      step: -1,
    }).at(-1);
  assert.deepEqual(idle(0), ["400 ns", " idle"]);
  assert.deepEqual(idle(7), ["100 ns", " idle"]);
  assert.deepEqual(idle(0, "RuntimeError"), ["600 ns", " active"]);
});

test("of equal peaks of all memory, the first one is named, as by Python", () => {
  const point = (time_ns, saved) => ({
    time_ns,
    saved,
    parameters: 1,
    optimizer_state: 0,
    gradients: 0,
    other: 0,
  });
  const live_points = [point(1, 5), point(8, 2), point(12, 5), point(18, 2)];
  const peak = livePeak({ live_points }, 0, Infinity);
  assert.deepEqual(peak, { nbytes: 6, time: 1, at: 0 });
  assert.equal(stepAt({ steps: STEPS }, peak.time), 0);
});
