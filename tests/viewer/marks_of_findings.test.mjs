// Marks of findings: on lines of the source, and on boxes of the graph.

import assert from "node:assert/strict";
import test from "node:test";

import { linesOfFindings } from "../../assets/viewer/scene/lines_of_findings.js";
import { indexScene } from "../../assets/viewer/scene/scene_index.js";
import { makeScene } from "./scenes.mjs";

const FINDING = {
  confidence: "hint",
  culprit_file: "",
  culprit_line: 0,
  culprit_text: "",
  victim_file: "",
  victim_line: 0,
  victim_text: "",
  nodes: [],
};

function sceneOf(...findings) {
  return makeScene({
    nodes: [
      { group: 0, filename: "a.py", lineno: 7 },
      { group: 2, filename: "a.py", lineno: 8 },
    ],
    groups: [{ parent: -1 }, { parent: 0 }, { parent: 1 }],
    findings: findings.map((each) => ({ ...FINDING, ...each })),
  });
}

const marksOf = (...findings) =>
  [...linesOfFindings(sceneOf(...findings)).values()].map(
    ({ lineno, tag, hint }) => [lineno, tag, hint],
  );

test("each finding marks its lines", () => {
  const marks = marksOf(
    {
      confidence: "certain",
      culprit_file: "a.py",
      culprit_line: 3,
      victim_file: "a.py",
      victim_line: 4,
    },
    { culprit_file: "a.py", culprit_line: 5 },
  );
  assert.deepEqual(marks, [
    [3, "culprit", false],
    [4, "victim", false],
    [5, "culprit", true],
  ]);
});

test("a culprit is no victim, and harm is no hint", () => {
  const marks = marksOf(
    { confidence: "likely", victim_file: "a.py", victim_line: 4 },
    { culprit_file: "a.py", culprit_line: 4 },
    { victim_file: "a.py", victim_line: 4 },
  );
  assert.deepEqual(marks, [[4, "culprit", false]]);
});

test("a finding without a line is at the line of its node", () => {
  assert.deepEqual(marksOf({ nodes: [1] }), [[8, "victim", true]]);
  assert.deepEqual(marksOf({}), []);
});

test("a box has the color of its most certain finding, as have the groups around it", () => {
  const { marks } = indexScene(
    sceneOf({ confidence: "certain", nodes: [1] }, { nodes: [1, 0] }),
  );
  assert.equal(marks.get("node 0"), "path");
  for (const key of ["node 1", "group 2", "group 1"])
    assert.equal(marks.get(key), "mutation");
});
