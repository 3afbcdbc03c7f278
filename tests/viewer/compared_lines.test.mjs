import assert from "node:assert/strict";
import { test } from "node:test";

import { linesThatDiffer } from "../../assets/viewer/views/compare/source_lines_that_differ.js";
import { mergedName } from "../../assets/viewer/views/compare/bytes_more_and_less.js";
import {
  foldAt,
  largestFold,
} from "../../assets/viewer/scene/bytes_of_ribbons_and_folds.js";
import { drawnNodes } from "../../assets/viewer/scene/figures_of_step.js";

test("a line with a power keeps its text", () => {
  const rows = [0, 1, 2].map((at) => ({
    kind: "module",
    merged: 0,
    module: `h.${at}.attn`,
    label: "attn",
  }));
  const text = "a = (q @ k) / d ** 0.5";
  assert.equal(
    mergedName(rows, { kind: "line", module: "h.*.attn", label: text }),
    text,
  );
  assert.equal(
    mergedName(rows, { kind: "module", module: "h.*.attn", label: "h.*.attn" }),
    "h.0–2.attn",
  );
});

test("the fold of a time is that whose backward runs then or comes next", () => {
  const fold = (index, start_ns, turn_ns, end_ns, step) => ({
    index,
    start_ns,
    turn_ns,
    end_ns,
    step,
    drawn: 1,
    peak_nbytes: 8,
  });
  const steps = [{ start_ns: 0 }, { start_ns: 50 }];
  const folds = [
    fold(0, 10, 20, 30, 0),
    fold(1, 12, 35, 40, 0),
    fold(2, 60, 70, 80, 1),
  ];
  const scene = { folds, steps };
  const found = [15, 25, 33, 37, 45, 55, 75].map((time) =>
    foldAt(scene, time, 1),
  );
  assert.deepEqual(found, [0, 0, 1, 1, 1, 2, 2]);
  assert.equal(largestFold(scene), 2);
  assert.equal(largestFold(scene, 0), 1);
  assert.equal(largestFold(scene, 7), -1);
});

test("nodes in closed groups are not counted as drawn", () => {
  const scene = {
    nodes: [{}, {}, {}].map(() => ({ born_ns: 1 })),
    steps: [],
  };
  const boxes = [
    { kind: "node", ref: 0 },
    { kind: "group", ref: 1 },
  ];
  assert.equal(drawnNodes({ scene, step: -1 }, boxes), "1 of 3 nodes drawn");
});

test("lines of one side come first, then those whose bytes at the peak differ most", () => {
  const line = (label, lines, at_peak, saved = [0, 0], fields = {}) => ({
    ...{ kind: "line", merged: 1, module: "", label, lines, at_peak, saved },
    ...{ recomputed: [0, 0], nodes: [1, 1], time_ns: [5, 5], ...fields },
  });
  const rows = [
    line("same", [1, 1], [8, 8]),
    line("little", [2, 2], [8, 7], [8, 7]),
    line("saved", [3, 4], [8, 8], [90, 10]),
    line("less", [4, 5], [50, 10], [50, 10]),
    line("more", [5, 6], [10, 70], [10, 70]),
    line("only after", [0, 7], [0, 1], [0, 1]),
    line("only before", [6, 0], [3, 0], [3, 0]),
    { ...line("parts", [8, 9], [20, 0], [20, 0]), module: "h.*" },
    { ...line("parts", [8, 9], [20, 0], [20, 0]), module: "ln" },
    { ...line("each block", [9, 9], [99, 0], [99, 0]), merged: 0 },
    line("as many, held for less", [10, 10], [4, 1], [5, 5]),
    line("other ops", [11, 11], [8, 8], [8, 8], {
      status: "changed",
      other_nodes: "+ReluBackward0",
    }),
  ];
  const found = linesThatDiffer(rows);
  assert.deepEqual(
    found.map(({ name }) => name),
    [
      ...["only before", "only after", "more", "less", "parts"],
      ...["as many, held for less", "little", "saved", "other ops"],
    ],
  );
  const [parts] = found.filter(({ name }) => name === "parts");
  assert.deepEqual(
    [parts.pair, parts.row.time_ns],
    [
      [40, 0],
      [10, 10],
    ],
  );
  assert.deepEqual(
    found.slice(0, 3).map(({ row }) => row.status),
    ["removed", "added", "changed"],
  );
});
