// Names of several modules in a row: a range of numbers, or the first and the last one.

import assert from "node:assert/strict";
import test from "node:test";

import {
  formatBytes,
  nameRange,
} from "../../assets/viewer/scene/format_numbers_and_names.js";
import { warmUpText } from "../../assets/viewer/scene/idle_and_compile_times.js";
import {
  modulesThatDiffer,
  signed,
} from "../../assets/viewer/views/compare/bytes_more_and_less.js";

test("numbers that differ in one place are a range", () => {
  assert.equal(nameRange("h.0", "h.5"), "h.0–5");
  assert.equal(nameRange("h.0.attn", "h.10.attn"), "h.0–10.attn");
  assert.equal(nameRange("h.0", "h.0"), "h.0");
});

test("other names have no range", () => {
  assert.equal(nameRange("wpe", "head"), "wpe … head");
  assert.equal(nameRange("layer1.0", "layer3.1"), "layer1.0 … layer3.1");
});

test("a first step that takes longer is named with its factor", () => {
  const text = (factor) => warmUpText({ warm_up: factor });
  assert.equal(
    text(8),
    "step 0 is warm-up: 8.0× the time of the longest other step",
  );
  assert.equal(
    text(1234),
    "step 0 is warm-up: 1,234× the time of the longest other step",
  );
  assert.equal(text(0), "");
});

const MB = 1_000_000;

/** Return a row of a comparison with bytes held at the peak. */
const row = (kind, module, at_peak, depth, merged = 1, label = module) => ({
  ...{ kind, module, at_peak, depth, merged, label },
  ...{ saved: [0, 0], recomputed: [0, 0], nodes: [0, 0], lines: [1, 1] },
});

const ROWS = [
  row("total", "", [9 * MB, 2 * MB], 0),
  row("module", "h.*", [8 * MB, 2 * MB], 1),
  row("line", "h.*", [8 * MB, 2 * MB], 2, 1, "y = x.exp()"),
  row("module", "head", [0, 0], 1),
  row("module", "h.0", [4 * MB, MB], 1, 0),
  row("module", "h.10", [4 * MB, MB], 1, 0),
];

test("a folded row of modules has the name of their range and the sum of their bytes", () => {
  const found = modulesThatDiffer(ROWS).map(({ name, pair }) => [name, pair]);
  assert.deepEqual(found, [
    ["all", [9 * MB, 2 * MB]],
    ["h.0–10", [8 * MB, 2 * MB]],
    ["outside of modules", [MB, 0]],
  ]);
});

test("bytes more and less have their sign", () => {
  assert.equal(signed(-7.1 * MB, formatBytes), "−7.1 MB");
  assert.equal(signed(400, formatBytes), "+400 B");
});
