// The sentence on top of a checkpoint region says what its two runs did.

import assert from "node:assert/strict";
import { test } from "node:test";

import { sentenceOfRegion } from "../../assets/viewer/views/compare/difference.js";

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
