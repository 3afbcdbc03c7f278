// The sentence on top of a checkpoint region says what its two runs did.

import assert from "node:assert/strict";
import { test } from "node:test";

import { sentenceOfRegion } from "../../assets/viewer/views/compare/sentences_on_difference.js";
import {
  byModule,
  sentenceOfPeaks,
  sentenceOfRegions,
} from "../../assets/viewer/views/checkpoint/cost_and_gain_of_all_regions.js";

import { findingOf } from "../../assets/viewer/views/checkpoint/region_panels.js";
import { initialRegion } from "../../assets/viewer/shared_view_state.js";

test("the banner of a region is the finding that was chosen", () => {
  const findings = [{ region: 0 }, { region: 1 }, { region: 0 }];
  const chosen = [0, 1, 2].map((finding) =>
    findingOf({ scene: { findings }, finding }, { index: 0 }),
  );
  assert.deepEqual(
    chosen.map((each) => findings.indexOf(each)),
    [0, 0, 2],
  );
});

const both = (status, op, line, other = op, otherLine = line) => ({
  status,
  forward_op: op,
  forward_line: line,
  recompute_op: other,
  recompute_line: otherLine,
});
const same = [both("same", "t", 12), both("same", "addmm", 12)];

test("equal runs are counted, without the ops that did not run again", () => {
  assert.equal(
    sentenceOfRegion(same),
    "Forward and recomputation ran the same 2 ops.",
  );
  assert.equal(
    sentenceOfRegion([...same, both("not_rerun", "addmm", 13, "", 0)]),
    "Forward and recomputation ran the same 2 ops; 1 op more did not have to run again.",
  );
});

test("the first part that differs is named with its lines", () => {
  const rows = [
    ...same,
    both("replaced", "sigmoid", 14, "gelu", 16),
    both("removed", "mul", 14, "", 0),
    both("same", "addmm", 17),
  ];
  assert.equal(
    sentenceOfRegion(rows),
    "The same 2 ops, then forward ran sigmoid, mul at line 14, recomputation gelu at line 16.",
  );
});

test("an op that read another tensor differs, and names it", () => {
  assert.equal(
    sentenceOfRegion([...same, both("other_input", "t(up)", 5, "t(down)")]),
    "The same 2 ops, then forward ran t(up) at line 5, recomputation t(down) at line 5.",
  );
});

test("an op of one run alone, and an op with other results", () => {
  assert.equal(
    sentenceOfRegion([both("added", "", 0, "mul", 3), ...same]),
    "Only the recomputation ran mul at line 3.",
  );
  assert.equal(
    sentenceOfRegion([...same, both("changed", "bernoulli_", 5)]),
    "The same 2 ops, then bernoulli_ at line 5 with other results.",
  );
});

test("the peaks with and without checkpoints are compared", () => {
  const peaks = (with_, without) =>
    sentenceOfPeaks({
      peak_nbytes: with_,
      older_nbytes: 0,
      without_checkpoints_nbytes: without,
    });
  assert.equal(
    peaks(250, 1000),
    "250 B are held at the peak with checkpoints, about 1.0 kB without: 75 % less.",
  );
  assert.match(peaks(1000, 1000), /they do not lower the peak\.$/);
  assert.equal(peaks(1000, 0), "");
});

test("the calls of a module are one row with their sums", () => {
  const call = (module, freed_nbytes) => ({
    module,
    freed_nbytes,
    recompute_ns: 10,
    held_nbytes: 1,
  });
  const rows = byModule([call("a", 100), call("b", 50), call("a", 300)]);
  assert.deepEqual(
    rows.map(({ name, members, freed }) => [name, members.length, freed]),
    [
      ["a", 2, 400],
      ["b", 1, 50],
    ],
  );
});

test("the region displayed first is of the step with the highest peak, as the fold", () => {
  const fold = (step) => ({ step, drawn: true, peak_nbytes: 5 });
  const scene = {
    findings: [],
    folds: [fold(0), fold(1)],
    regions: [{ step: 0 }, { step: 0 }, { step: 1 }],
    diffs: [0, 1, 2].map((region) => ({ region, status: "same" })),
  };
  assert.equal(initialRegion(scene), 2);
  assert.equal(initialRegion({ ...scene, folds: [] }), 0);
  scene.diffs[1].status = "replaced";
  assert.equal(initialRegion(scene), 1);
});

test("the share of recomputations says that it is of the step", () => {
  const region = {
    parent: -1,
    recomputes: 1,
    freed_nbytes: 9000,
    held_nbytes: 0,
    recompute_ns: 20,
  };
  const text = sentenceOfRegions([region], 100);
  assert.match(text, /20 ns, 20 % of the step's active time/);
});
