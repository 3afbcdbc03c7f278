// The tracks of the timeline.

import assert from "node:assert/strict";
import test from "node:test";

import { timelineTracks } from "../../assets/viewer/views/timeline/tracks_and_bars.js";

/** Return a span of the timeline. */
function span(kind, start_ns, end_ns, fields = {}) {
  return {
    kind,
    label: kind,
    start_ns,
    end_ns,
    depth: 0,
    thread: 0,
    ref: -1,
    ...fields,
  };
}

/** Return the track of a name, undefined without one. */
function track(
  name,
  spans,
  { modules = [], steps = [], warm_up = 0, root = "" } = {},
) {
  const nodes = modules.map((module) => ({ module }));
  const tracks = timelineTracks({
    scene: { spans, nodes, regions: [], steps, summary: { warm_up, root } },
  });
  return tracks.find((each) => each.name === name);
}

/** Return the bars of the backward track by row. */
function backwardBars(spans, modules) {
  const { bars } = track("backward", spans, { modules });
  return [0, 1, 2].map((row) => bars.filter((bar) => bar.row === row));
}

test("nodes of one block in two backward calls have a bar in each", () => {
  const spans = [
    span("backward", 0, 100),
    span("node", 10, 20, { ref: 0 }),
    span("node", 20, 30, { ref: 1 }),
    span("forward", 100, 200),
    span("backward", 200, 300),
    span("node", 210, 220, { ref: 0 }),
    span("node", 220, 230, { ref: 1 }),
  ];
  const [, blocks] = backwardBars(spans, ["h.0.attn", "h.0.mlp"]);
  assert.deepEqual(
    blocks.map(({ label, start, end }) => [label, start, end]),
    [
      ["h.0", 10, 30],
      ["h.0", 210, 230],
    ],
  );
});

test("no bar of a block or node leaves its backward call", () => {
  const spans = [];
  for (let call = 0; call < 6; call++) {
    const start = 1_000 * call;
    spans.push(span("backward", start, start + 600));
    for (let at = 0; at < 6; at++) {
      const from = start + 100 * at;
      spans.push(span("node", from, from + 90, { ref: (at >> 1) % 2 }));
    }
  }
  const [calls, blocks, nodes] = backwardBars(spans, ["h.0", "h.1"]);
  assert.equal(blocks.length, 18);
  for (const bar of [...blocks, ...nodes]) {
    assert.ok(
      calls.some((call) => call.start <= bar.start && bar.end <= call.end),
    );
  }
});

test("a number alone names a bar only if one thing is numbered in its row", () => {
  const module = (label, at) =>
    span("module", at, at + 10, { label, depth: 1 });
  const named = (...labels) => {
    const { bars, numbered } = track("forward", labels.map(module));
    return [numbered, ...bars.map(({ number }) => number)];
  };
  const blocks = named("h.0", "h.1", "h.2", "head");
  assert.deepEqual(blocks, ["h.0–2", "0", "1", "2", undefined]);
  const several = named("down.0", "up.0");
  assert.deepEqual(several, ["", undefined, undefined]);
});

test("several steps are a track, one step is not", () => {
  const steps = [
    { number: 4, start_ns: 0, end_ns: 100 },
    { number: 5, start_ns: 100, end_ns: 150 },
  ];
  const { bars } = track("steps", [], { steps });
  assert.deepEqual(
    bars.map(({ label, start, end, ref }) => [label, start, end, ref]),
    [
      ["step 4", 0, 100, 0],
      ["step 5", 100, 150, 1],
    ],
  );
  assert.equal(track("steps", [], { steps: steps.slice(0, 1) }), undefined);
  const warm = track("steps", [], { steps, warm_up: 8 }).bars;
  assert.deepEqual(
    warm.map(({ label }) => label),
    ["step 4, warm-up", "step 5"],
  );
});

test("modes of an optimizer and of a recomputation are not drawn, and gradients have a row", () => {
  const spans = [
    span("mode", 10, 20, { label: "no_grad" }),
    span("recompute", 100, 200),
    span("mode", 100, 200, { label: "enable_grad" }),
    span("mode", 299, 401),
    span("optimizer", 300, 400),
    span("random", 50, 50),
    span("node", 150, 151, { label: "AccumulateGrad" }),
  ];
  assert.deepEqual(
    track("no_grad", spans).bars.map(({ label }) => label),
    ["no_grad"],
  );
  assert.deepEqual(
    ["marks", "gradients"].map((name) => track(name, spans).bars[0].kind),
    ["random", "accumulate"],
  );
});

test("the class of the model is left out of the names of its blocks", () => {
  const spans = [
    span("forward", 0, 100),
    span("module", 0, 100, { label: "UNet" }),
    span("module", 10, 50, { label: "UNet.down", depth: 1 }),
    span("module", 50, 90, { label: "UNet.up", depth: 1 }),
    span("backward", 100, 200),
    span("node", 110, 120, { ref: 0 }),
    span("node", 120, 130, { ref: 1 }),
    span("node", 130, 140, { ref: 2 }),
  ];
  const options = {
    modules: ["UNet", "UNet.up.conv", "UNet.down.conv"],
    root: "UNet",
  };
  const labels = (name) =>
    track(name, spans, options)
      .bars.filter(({ row }) => row === 1)
      .map(({ label }) => label);
  assert.deepEqual(labels("forward"), ["down", "up"]);
  assert.deepEqual(labels("backward"), ["up", "down"]);
});
