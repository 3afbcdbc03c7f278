/** layout/group_sizes_and_inner_positions.js: sizes of groups and positions in them, from their top left corner. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { measure } from "../../assets/viewer/layout/group_sizes_and_inner_positions.js";
import { group, makeScene } from "./scenes.mjs";

/** Return the geometry of the root, with some groups open. */
function measureRoot(tables, open = []) {
  const geometries = new Map();
  measure(makeScene(tables), 0, new Set([0, ...open]), geometries);
  return geometries.get(0);
}

const CHAIN = {
  nodes: [{}, {}],
  groups: [
    group({ cells: ["node 0", "node 1"], rows: [[0], [1]], links: [[1, 0]] }),
  ],
};

test("a chain is a column of boxes 14 apart", () => {
  const geometry = measureRoot(CHAIN);
  assert.deepEqual(geometry.boxWidth, [100, 100]);
  assert.deepEqual(geometry.y, [0, 24 + 14]);
  assert.deepEqual(geometry.x, [56, 56]);
  assert.deepEqual([geometry.width, geometry.height], [112, 62]);
  assert.equal(geometry.axis, 56);
});

test("badges take space only on their side", () => {
  const nodes = [{ left_width: 30, right_width: 80 }, {}];
  const geometry = measureRoot({ ...CHAIN, nodes });
  assert.equal(geometry.width, 112 + 30 + 80);
  assert.deepEqual(geometry.x, [86, 86]);
});

test("a compact node is lower, and centered in its row", () => {
  const groups = [group({ cells: ["node 0", "node 1"], rows: [[0, 1]] })];
  const geometry = measureRoot({ nodes: [{ compact: 1 }, {}], groups });
  assert.deepEqual(geometry.boxHeight, [18, 24]);
  assert.deepEqual(geometry.y, [3, 0]);
});

test("folded views take space for their number", () => {
  const links = [{ path: [1, 0], views: 2 }];
  const groups = [
    group({ cells: ["node 0", "node 1"], rows: [[0], [1]], links }),
  ];
  assert.deepEqual(measureRoot({ ...CHAIN, groups }).y, [0, 24 + 28]);
});

test("a horizontal segment increases the gap between rows", () => {
  const groups = [
    group({
      cells: ["node 0", "node 1", "node 2"],
      rows: [[0, 1], [2]],
      links: [
        [2, 0],
        [2, 1],
      ],
    }),
  ];
  const geometry = measureRoot({ nodes: [{}, {}, {}], groups });
  const gap = geometry.y[2] - 24;
  assert.equal(gap, 13 + 6, "one track");
  const tracks = [...geometry.trackY.values()];
  assert.ok(tracks.length > 0);
  assert.ok(tracks.every((y) => y === 24 + 13));
});

const NESTED = {
  nodes: [{ group: 1 }],
  groups: [
    group({ cells: ["group 1"], rows: [[0]] }),
    group({
      kind: "module",
      width: 130,
      header_width: 90,
      cells: ["node 0"],
      rows: [[0]],
    }),
  ],
};

test("a closed group has the size of its box", () => {
  const geometry = measureRoot(NESTED);
  assert.deepEqual([geometry.boxWidth, geometry.boxHeight], [[130], [28]]);
});

test("a closed run of blocks is a stack of boxes", () => {
  const groups = [NESTED.groups[0], { ...NESTED.groups[1], repeat: 3 }];
  assert.deepEqual(measureRoot({ ...NESTED, groups }).boxHeight, [28 + 6]);
});

test("an open group has a header and padding around its contents", () => {
  const geometry = measureRoot(NESTED, [1]);
  assert.deepEqual(geometry.boxHeight, [30 + 6 + 24 + 14]);
  assert.deepEqual(geometry.boxWidth, [14 + 112 + 14]);
});

test("an open group is at least as wide as its header", () => {
  const groups = [NESTED.groups[0], { ...NESTED.groups[1], header_width: 400 }];
  assert.deepEqual(measureRoot({ ...NESTED, groups }, [1]).boxWidth, [400]);
});

test("the header has space for the number of recomputations", () => {
  const wide = { ...NESTED.groups[1], header_width: 400, checkpointed: 1 };
  assert.deepEqual(
    measureRoot({ ...NESTED, groups: [NESTED.groups[0], wide] }, [1]).boxWidth,
    [400 + 126],
  );
});

test("the links at one side of a box are spread", () => {
  const groups = [
    group({
      cells: ["node 0", "node 1", "node 2"],
      rows: [[0, 1], [2]],
      links: [
        [2, 0],
        [2, 1],
      ],
    }),
  ];
  const geometry = measureRoot({ nodes: [{}, {}, {}], groups });
  assert.ok(geometry.sourceX[0] < geometry.sourceX[1]);
  assert.deepEqual(geometry.targetX, [geometry.x[0], geometry.x[1]]);
});

test("only missing geometries are measured", () => {
  const scene = makeScene(NESTED);
  const geometries = new Map();
  measure(scene, 0, new Set([0, 1]), geometries);
  const inner = geometries.get(1);
  measure(scene, 0, new Set([0, 1]), geometries);
  assert.equal(geometries.get(1), inner);
});
