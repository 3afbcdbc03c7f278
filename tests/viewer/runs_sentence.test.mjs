// The sentence on two recordings: times beyond their spread only, and bytes of one step.

import assert from "node:assert/strict";
import test from "node:test";
import { sentencesOfRuns } from "../../assets/viewer/views/compare/sentences_on_difference.js";

const MB = 1_000_000;

function sentence(
  least,
  most,
  recomputed = [0, 255 * MB],
  left_out = [0, 0],
  texts = [],
) {
  const steps = [3, 3];
  const time_ns = least.map((ns, at) => (3 * (ns + most[at])) / 2);
  const none = {
    nodes: [0, 0],
    saved: [0, 0],
    recomputed: [0, 0],
    at_peak: [0, 0],
  };
  const row = { ...none, steps, left_out, time_ns, label: "forward" };
  return sentencesOfRuns({
    compared_texts: texts,
    comparison_rows: [
      { ...row, kind: "total", at_peak: [91 * MB, 17 * MB], recomputed },
      { ...row, kind: "phase", least_ns: least, most_ns: most },
    ],
  });
}

test("times inside their spread are no result", () => {
  assert.equal(
    sentence([50e6, 40e6], [90e6, 60e6])[0],
    "91 MB → 17 MB held at the peak; backward recomputes 85 MB per step.",
  );
});

test("bytes per step are those of all steps, also of one whose time does not count", () => {
  assert.match(
    sentence([50e6, 40e6], [90e6, 60e6], [0, 340 * MB], [1, 1])[0],
    /; backward recomputes 85 MB per step\.$/,
  );
});

test("a first step that is slow makes no result", () => {
  assert.doesNotMatch(sentence([131e6, 50e6], [385e6, 125e6])[0], / ms /);
});

test("times beyond their spread are a result", () => {
  assert.match(
    sentence([50e6, 80e6], [60e6, 90e6])[0],
    /; 55.* ms → 85.* ms per step\.$/,
  );
  assert.match(
    sentence([80e6, 50e6], [90e6, 60e6], [255 * MB, 0])[0],
    /recomputes nothing instead of 85 MB per step; 85.* ms → 55/,
  );
});

test("ops of eager and of compiled code are never called the same", () => {
  const regions = {
    kind: "difference",
    aspect: "compiled",
    what: "regions of inductor",
  };
  const texts = [{ ...regions, before: "0", after: "4" }];
  const more = (texts) => sentence([1, 1], [1, 1], [0, 0], [0, 0], texts)[1];
  assert.equal(
    more(texts),
    "Compiled regions of inductor: 0 → 4. No finding in either.",
  );
  assert.equal(more([]), "The same ops in both. No finding in either.");
});
