/** layout/main_column.js: the main column of a group. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { longestPath } from "../../assets/viewer/layout/main_column.js";
import { group, makeScene } from "./scenes.mjs";

/** Return the longest path of a group with these rows and links, in order. */
function pathOf(rows, links) {
  const cells = rows.flat().map((cell) => `node ${cell}`);
  const scene = makeScene({ groups: [group({ cells, rows, links })] });
  return [...longestPath(scene.groups[0])].sort((a, b) => a - b);
}

test("a chain is the longest path itself", () => {
  assert.deepEqual(
    pathOf(
      [[0], [1], [2]],
      [
        [1, 0],
        [2, 1],
      ],
    ),
    [0, 1, 2],
  );
});

test("a shortcut is not part of the longest path", () => {
  const rows = [[0], [1, 3], [2]];
  const links = [
    [1, 0],
    [2, 1],
    [3, 0],
  ];
  assert.deepEqual(pathOf(rows, links), [0, 1, 2]);
});

test("the middle one of three paths of equal length is selected", () => {
  const rows = [[0], [1, 2, 3], [4]];
  const links = [1, 2, 3].flatMap((middle) => [
    [middle, 0],
    [4, middle],
  ]);
  assert.deepEqual(pathOf(rows, links), [0, 2, 4]);
});

test("a reversed link counts against its direction", () => {
  const rows = [[0], [1], [2]];
  const links = [[1, 0], { path: [1, 2], reversed: 1 }];
  assert.deepEqual(pathOf(rows, links), [0, 1, 2]);
});

test("without links there is no main column", () => {
  assert.deepEqual(pathOf([[0, 1]], []), []);
});
