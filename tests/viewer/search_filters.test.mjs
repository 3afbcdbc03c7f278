// Filters of the search.

import assert from "node:assert/strict";
import test from "node:test";
import {
  findNodes,
  parseQuery,
} from "../../assets/viewer/shell/search_filters.js";

const NODES = [
  ["softmax", "layers.3.attn", 2e6, "ran"],
  ["softmax", "layers.30.attn", 2e6, "not_run"],
  ["mm", "layers.3", 500, "ran"],
].map(([op, module, saved_nbytes, state], index) => ({
  index,
  op,
  name: `${op}Backward0`,
  module,
  saved_nbytes,
  state,
  error: 0,
  filename: "/home/me/net.py",
  lineno: 10 + index,
  shape: "2×32",
  forward_ns: 1e6,
  duration_ns: 1e6 * index,
  born_ns: 15 * index,
  runs_ns: [],
  recomputes: index,
  wrote: "",
  writes: 0,
  hooks: [],
  not_finite: "",
}));

const INDEX = {
  scene: {
    nodes: NODES,
    steps: [
      { number: 18, end_ns: 10 },
      { number: 19, end_ns: 50 },
    ],
  },
  parameters: [[{ name: "layers.3.weight", label: "weight" }], [], []],
  findings: [[], [0], []],
};

/** Return the indices that a text finds. */
function find(text) {
  const query = parseQuery(INDEX, text);
  return [...findNodes(INDEX, query, ({ name }) => name.toLowerCase())];
}

for (const [text, expected] of [
  ["op:softmax", [0, 1]],
  ["op:softmax saved>1MB step:18", [0]],
  ["module:layers.3", [0, 2]],
  ["saved<1kb", [2]],
  ["time>2.5ms", [2]],
  ["line:net.py:11", [1]],
  ["line:net.py", [0, 1, 2]],
  ["param:weight", [0]],
  ["shape:2x32 recomputed", [1, 2]],
  ["no-grad", [1]],
  ["not-reached finding", [1]],
  ["step:19 mm", [2]],
]) {
  test(`${text} finds ${expected}`, () =>
    assert.deepEqual(find(text), expected));
}

test("a part that looks like a filter and is none is named", () => {
  const query = parseQuery(INDEX, "size>3 net.py:12 torch::nn");
  assert.deepEqual(query.unknown, ["size>3"]);
  assert.deepEqual(query.words, ["net.py:12", "torch::nn"]);
});
