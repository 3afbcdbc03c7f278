// Rows of saved storages, and excerpts of source lines.

import assert from "node:assert/strict";
import test from "node:test";
import {
  BREAKS,
  functionsOf,
} from "../../assets/viewer/views/source/excerpt.js";
import {
  StorageRows,
  namesOf,
} from "../../assets/viewer/views/tensors/storage_rows.js";

const storage = (index, holds, fields = {}) => ({
  ...{
    index,
    holds,
    name: "x",
    module: "",
    nbytes: 8,
    node: index,
    shape: "2",
  },
  ...{
    filename: "a.py",
    lineno: 1,
    state: "released",
    slots: ["MulBackward0.self"],
    ...fields,
  },
});

const storeOf = (storages, step) => ({
  step,
  matches: null,
  subscribe() {},
  scene: {
    storages,
    counted_storages: storages,
    steps: [
      { start_ns: 0, end_ns: 10 },
      { start_ns: 11, end_ns: 20 },
    ],
  },
});

test("what several steps save is a row in each of them", () => {
  const shared = storage(0, [1, 5, 12, 15]);
  const first = storage(1, [2, 5]);
  const indices = (step) =>
    new StorageRows(storeOf([shared, first], step)).rows
      .flatMap(({ storages }) => storages.map(({ index }) => index))
      .sort();
  assert.deepEqual(indices(0), [0, 1]);
  assert.deepEqual(indices(1), [0]);
});

test("a row has its bytes in all and those at the peak", () => {
  const storages = Array.from({ length: 13 }, (_, at) =>
    storage(at, [2 * at, 2 * at + 1], { name: "h" }),
  );
  const [row] = new StorageRows(storeOf(storages, -1)).rows;
  assert.deepEqual(
    [row.storages.length, row.nbytes, row.atPeak, row.held],
    [13, 104, 8, 1],
  );
});

test("a row of several tensors has the range of their names", () => {
  assert.equal(
    namesOf([0, 2, 1].map((at) => storage(at, [], { name: `h.${at} out` }))),
    "h.0–2 out",
  );
  assert.equal(namesOf([storage(0, [1, 2]), storage(1, [1, 2])]), "x");
});

test("what was never held has a row of its own, without bytes", () => {
  const storages = Array.from({ length: 13 }, (_, at) =>
    storage(at, at ? [0, 1] : []),
  );
  const rows = new StorageRows(storeOf(storages, -1)).rows;
  assert.deepEqual(
    rows.map(({ storages, nbytes }) => [storages.length, nbytes]),
    [
      [12, 96],
      [1, 0],
    ],
  );
});

test("values of a compiled region fold, though each has a slot of its own", () => {
  const storages = Array.from({ length: 13 }, (_, at) =>
    storage(at, [0, 1], { slots: [`CompiledFunctionBackward.view_${at}`] }),
  );
  assert.equal(new StorageRows(storeOf(storages, -1)).rows.length, 1);
});

test("an excerpt is from the def to the end of the lines that matter", () => {
  const lines = new Map([
    [7, "    self.n = n"],
    [8, ""],
    [9, "    def forward(self, x):"],
    [10, "        y = x"],
    [11, "        return y"],
    [12, ""],
    [13, "class Other:"],
  ]);
  assert.deepEqual(
    functionsOf(lines, (line) => line === 10),
    [9, 10, 11],
  );
  lines.delete(9);
  assert.deepEqual(
    functionsOf(lines, (line) => line === 10),
    [10, 11],
  );
  assert.deepEqual(
    functionsOf(lines, () => false),
    [...lines.keys()],
  );
});

test("top-level code is no part of the function above it", () => {
  const lines = new Map(
    ["def f(x):", "    y = x", "    return y", "m = f(1)", "m.backward()"].map(
      (t, at) => [at + 1, t],
    ),
  );
  assert.deepEqual(
    functionsOf(lines, (line) => line === 2),
    [1, 2, 3],
  );
});

test("a line is broken at commas and operators only", () => {
  const split = (text) => text.split(BREAKS);
  assert.deepEqual(split("m=torch.ones(T,T,dtype=torch.bool)"), [
    "m=",
    "torch.ones(T,",
    "T,",
    "dtype=",
    "torch.bool)",
  ]);
  assert.deepEqual(split("a + 1e-4, float('-inf')"), [
    "a + ",
    "1e-4, ",
    "float('-inf')",
  ]);
});
