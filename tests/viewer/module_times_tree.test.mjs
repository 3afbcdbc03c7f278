// The tree of module times: a row is the sum of what is in its module.

import assert from "node:assert/strict";
import test from "node:test";

import {
  moduleTimes,
  nameOfModules,
} from "../../assets/viewer/scene/module_times_tree.js";

const row = (module, time, parts = { forward: time }) => ({
  label: module || "between ops",
  modules: new Set(module ? [module] : []),
  count: 1,
  time,
  parts,
  phase: "forward",
  node: -1,
});

const ROWS = [
  row("h.0.attn", 30),
  row("h.0", 5, { forward: 2, backward: 3 }),
  row("h.1.attn", 20),
  row("head", 40),
  row("", 7),
];

test("each module has its own time and that of the modules in it", () => {
  const [h, head, rest] = moduleTimes(ROWS);
  assert.deepEqual(
    [h.path, h.own, h.sum.time, h.sum.count],
    ["h", null, 55, 3],
  );
  assert.deepEqual(h.sum.parts, { forward: 52, backward: 3 });
  assert.deepEqual([head.path, head.sum.time], ["head", 40]);
  assert.deepEqual([rest.path, rest.sum.time], ["between ops", 7]);
  const [first, second] = h.parts;
  assert.deepEqual(
    [first.path, first.own.time, first.sum.time],
    ["h.0", 5, 35],
  );
  assert.deepEqual(
    [second.path, second.own, second.sum.time],
    ["h.1", null, 20],
  );
});

test("the roots add up to all rows", () => {
  const sum = (some) => some.reduce((total, { time }) => total + time, 0);
  assert.equal(sum(moduleTimes(ROWS).map((each) => each.sum)), sum(ROWS));
});

test("a list of modules has the name of their range, a part its own", () => {
  const [h] = moduleTimes(ROWS);
  assert.equal(nameOfModules(h, ""), "h.0–1");
  assert.equal(nameOfModules(h.parts[0], "h"), "h.0");
  assert.equal(nameOfModules(h.parts[0].parts[0], "h.0"), "attn");
});
