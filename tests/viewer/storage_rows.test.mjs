// Rows of saved storages, and excerpts of source lines.

import assert from "node:assert/strict";
import test from "node:test";
import {
  BREAKS,
  functionsOf,
  linesToShow,
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
    output_of: "",
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
    summary: { root: "" },
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
  assert.deepEqual([row.storages.length, row.nbytes, row.atPeak], [13, 104, 8]);
});

const namesIn = (storages) => namesOf({ summary: { root: "" } }, storages);

test("a row of several tensors has the range of their names", () => {
  const outs = [0, 2, 1].map((at) =>
    storage(at, [], {
      name: `h.${at} out`,
      output_of: `h.${at}`,
      module: `h.${at + 1}`,
    }),
  );
  assert.equal(namesIn(outs), "h.0–2 out");
  assert.equal(namesIn([storage(0, [1, 2]), storage(1, [1, 2])]), "x");
  const others = [2, 4].map((at) => storage(at, [], { module: `g.${at}` }));
  assert.equal(namesIn(others), "g.2,4 x");
  const means = ["h.0.n1", "h.0.n2", "h.7.n1", "h.7.n2"].map((module, at) =>
    storage(at, [], { name: "mean", module }),
  );
  assert.equal(namesIn(means), "h.0,7.n1–2 mean");
});

test("a name has the path of the module that returned the tensor, or that saved it", () => {
  const out = storage(0, [], {
    name: "c out",
    output_of: "UNet.d2.c",
    module: "UNet.d2.bn",
  });
  const input = storage(1, [], { name: "input", module: "UNet.d2.c" });
  const own = storage(2, [], { name: "x", module: "UNet" });
  const weight = storage(3, [], { name: "d2.weight", module: "d2" });
  assert.equal(namesIn([out]), "UNet.d2.c out");
  const scene = { summary: { root: "UNet" } };
  const names = [out, input, own].map((each) => namesOf(scene, [each]));
  assert.deepEqual(names, ["d2.c out", "d2.c input", "x"]);
  assert.equal(namesIn([weight]), "d2.weight");
});

test("rows of one name and line say what they differ in", () => {
  const rows = (storages) =>
    new StorageRows(storeOf(storages, -1)).rows
      .sort((a, b) => a.storages[0].index - b.storages[0].index)
      .map(({ apart }) => apart);
  const same = [1, 2, 12].map((time, at) => storage(at, [time, time + 1]));
  same.push(
    storage(3, [3, 4], { shape: "4" }),
    storage(4, [3, 4], { name: "y" }),
  );
  const [first, second] = [0, 1].map((number) => ({ number }));
  const store = storeOf(same, -1);
  Object.assign(store.scene.steps[0], first);
  Object.assign(store.scene.steps[1], second);
  const found = new StorageRows(store).rows
    .sort((a, b) => a.storages[0].index - b.storages[0].index)
    .map(({ apart }) => apart);
  assert.deepEqual(found, [
    "2 · step 0",
    "2 · step 0",
    "2 · step 1",
    "4 · step 0",
    "",
  ]);
  assert.deepEqual(rows([storage(0, [1, 2])]), [""]);
});

test("what fills the peak is the same sentence for folded rows and for all", () => {
  const blocks = Array.from({ length: 13 }, (_, at) =>
    storage(at, [1, 9], { name: "h", module: `b.${at}`, nbytes: 10 }),
  );
  const other = storage(13, [1, 9], { name: "w", nbytes: 20 });
  const rows = new StorageRows(storeOf([...blocks, other], -1));
  const sentence = "b.0–12 h fills 130 B of the 150 B at the peak.";
  assert.equal(rows.fillers(), sentence);
  rows.change({ folded: false });
  assert.equal(rows.rows.length, 14);
  assert.equal(rows.fillers(), sentence);
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

test("lines without numbers are folded, but for those around the others", () => {
  const texts = [
    "def forward(self, x):",
    "    b = 1",
    "    c = 2",
    "    d = 3",
    "    for each in x:",
    "        y = each.exp()",
    "    z = 4",
    "    return y",
  ];
  const lines = new Map(texts.map((text, at) => [at + 1, text]));
  const shown = (...matter) => [
    ...linesToShow(lines, [...lines.keys()], (at) => matter.includes(at)),
  ];
  assert.deepEqual(
    shown(6).sort((a, b) => a - b),
    [1, 5, 6, 7, 8],
  );
  assert.deepEqual(shown().length, texts.length);
});
