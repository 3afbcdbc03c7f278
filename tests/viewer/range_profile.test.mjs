// The profile of a range of time.

import assert from "node:assert/strict";
import test from "node:test";

import {
  profileRange,
  recomputedByNode,
} from "../../assets/viewer/scene/range_profile.js";

const NODE = {
  op: "",
  module: "",
  filename: "",
  lineno: 0,
  born_ns: -1,
  forward_ns: 0,
};

/** Return the self times of a recording of 1,000 ns by label. */
function selfTimes(nodes, { spans = [], idle_ns = [] } = {}) {
  const scene = {
    nodes: nodes.map((node, index) => ({ ...NODE, index, ...node })),
    spans: spans.map((span) => ({
      depth: 0,
      ref: -1,
      label: span.kind,
      ...span,
    })),
    summary: { idle_ns },
    counted_storages: [],
  };
  const rows = profileRange({ scene, end: 1_000 }, [0, 1_000], "node");
  return Object.fromEntries(rows.map(({ label, time }) => [label, time]));
}

test("idle time after the start of a node that failed is not its time", () => {
  const failed = { name: "ExpBackward0", state: "failed", runs_ns: [300, -1] };
  assert.deepEqual(selfTimes([failed], { idle_ns: [310, 1_000] }), {
    ExpBackward0: 10,
  });
  const ran = { ...failed, state: "ran", runs_ns: [300, 400] };
  assert.deepEqual(selfTimes([ran], { idle_ns: [410, 1_000] }), {
    ExpBackward0: 100,
  });
});

test("a recomputation that failed has no idle time, and its node neither", () => {
  const node = {
    name: "CheckpointBackward0",
    state: "failed",
    runs_ns: [100, -1],
    duration_ns: 90, // without the idle time
  };
  const spans = [{ kind: "recompute", start_ns: 150, end_ns: 800 }];
  assert.deepEqual(selfTimes([node], { spans, idle_ns: [190, 1_000] }), {
    CheckpointBackward0: 50,
    "recompute, recomputed": 40,
  });
});

test("a node that failed has the time until the exception left it", () => {
  const failed = {
    name: "ExpBackward0",
    state: "failed",
    runs_ns: [100, 150, 300, -1],
    duration_ns: 70,
  };
  assert.deepEqual(selfTimes([failed]), { ExpBackward0: 70 });
});

test("a compilation has a row, and is not time of the node that caused it", () => {
  const node = {
    name: "CompiledFunctionBackward",
    state: "ran",
    runs_ns: [100, 600],
  };
  const compile = {
    kind: "compile",
    label: "compile 0/0",
    start_ns: 150,
    end_ns: 550,
  };
  const inner = {
    ...compile,
    label: "compile 0/0",
    start_ns: 200,
    end_ns: 300,
    depth: 1,
  };
  assert.deepEqual(selfTimes([node], { spans: [compile, inner] }), {
    "compile 0/0": 400,
    CompiledFunctionBackward: 100,
  });
});

test("a recomputation is no time of the node that triggered it", () => {
  const node = { name: "MulBackward0", state: "ran", runs_ns: [100, 600] };
  const spans = [
    { kind: "recompute", depth: 0, start_ns: 150, end_ns: 450 },
    { kind: "recompute", depth: 1, start_ns: 200, end_ns: 300 },
    { kind: "recompute", depth: 0, start_ns: 700, end_ns: 900 },
  ];
  assert.equal(recomputedByNode({ spans }, node), 300);
  assert.equal(selfTimes([node], { spans }).MulBackward0, 200);
});

test("a line has all its ops, also those without a node, with its nodes", () => {
  const frames = [
    { filename: "gpt.py", lineno: 24 },
    { filename: "gpt.py", lineno: 36 },
  ];
  const time = (origin, phase, ns, step = 0) => ({
    ...{ call: origin, origin, module: "", phase, ns, step, count: 1 },
  });
  const scene = {
    nodes: [{ ...NODE, ...frames[1], module: "mlp", runs_ns: [], index: 0 }],
    spans: [],
    summary: { idle_ns: [] },
    call_frames: frames,
    call_times: [
      time(1, "forward", 40),
      time(1, "backward", 124),
      time(0, "forward", 68),
      time(0, "backward", 112),
      time(-1, "backward", 5, 1),
    ],
  };
  const rows = (step) =>
    profileRange({ scene, end: 1_000 }, [0, 1_000], "line", step).map(
      ({ label, time, parts, node }) => [label, time, parts, node],
    );
  assert.deepEqual(rows(-1), [
    ["gpt.py:24", 180, { forward: 68, backward: 112 }, -1],
    ["gpt.py:36", 164, { forward: 40, backward: 124 }, 0],
    ["no line", 5, { backward: 5 }, -1],
  ]);
  assert.deepEqual(rows(1), [["no line", 5, { backward: 5 }, -1]]);
});

test("a module has all its ops in one row, with its phases as parts", () => {
  const time = (module, phase, ns, step = 0) => ({
    origin: -1,
    module,
    phase,
    ns,
    step,
    count: 2,
  });
  const scene = {
    nodes: [{ ...NODE, module: "h.0", runs_ns: [], index: 3 }],
    spans: [],
    summary: { idle_ns: [] },
    call_frames: [],
    call_times: [
      time("h.0", "recompute", 30),
      time("h.0", "forward", 40),
      time("h.0", "backward", 50),
      time("", "optimizer", 5),
      time("h.0", "forward", 7, 1),
    ],
  };
  const rows = (step) =>
    profileRange({ scene, end: 1_000 }, [0, 1_000], "module", step).map(
      ({ label, time, parts, count, node }) => [
        label,
        time,
        parts,
        count,
        node,
      ],
    );
  assert.deepEqual(rows(0), [
    ["h.0", 120, { recompute: 30, forward: 40, backward: 50 }, 6, 3],
    ["no module", 5, { optimizer: 5 }, 2, -1],
  ]);
  assert.deepEqual(rows(1), [["h.0", 7, { forward: 7 }, 2, 3]]);
});
