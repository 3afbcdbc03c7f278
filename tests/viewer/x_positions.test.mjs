/** layout/x_positions.js: the x of every cell. */

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  BEND_WEIGHT,
  MAIN_WEIGHT,
  NODE_WEIGHT,
  setXPositions,
} from "../../assets/viewer/layout/x_positions.js";

const GAP = 12;

/**
 * Return the x of the cells of some rows. Cells are 20 wide on both sides of their axis; bends have
 * no width. A link is [lower cell, upper cell].
 */
function xOf({ rows, links, bends = [], main = [], half = 20 }) {
  const cells = rows.flat();
  const isBend = cells.map((_, cell) => bends.includes(cell));
  const grid = {
    rows,
    isBend,
    weight: cells.map((_, cell) =>
      main.includes(cell)
        ? MAIN_WEIGHT
        : isBend[cell]
          ? BEND_WEIGHT
          : NODE_WEIGHT,
    ),
    above: cells.map(() => []),
    below: cells.map(() => []),
    left: isBend.map((bend) => (bend ? 0 : half)),
    right: isBend.map((bend) => (bend ? 0 : half)),
    x: cells.map(() => 0),
  };
  for (const [lower, upper] of links) {
    const weight =
      main.includes(lower) && main.includes(upper) ? MAIN_WEIGHT : 1;
    grid.above[lower].push([upper, 0, weight]);
    grid.below[upper].push([lower, 0, weight]);
  }
  setXPositions(grid);
  return grid.x;
}

test("a chain is a straight column", () => {
  const x = xOf({
    rows: [[0], [1], [2]],
    links: [
      [1, 0],
      [2, 1],
    ],
  });
  assert.deepEqual(x, [0, 0, 0]);
});

test("cells of a row keep their order and distance", () => {
  const x = xOf({
    rows: [[0, 1, 2], [3]],
    links: [
      [3, 0],
      [3, 1],
      [3, 2],
    ],
  });
  assert.equal(x[1] - x[0], 20 + GAP + 20);
  assert.equal(x[2] - x[1], 20 + GAP + 20);
});

test("a cell is below the median of the cells above it", () => {
  const x = xOf({
    rows: [[0, 1, 2], [3]],
    links: [
      [3, 0],
      [3, 1],
      [3, 2],
    ],
  });
  assert.equal(x[3], x[1]);
});

test("the main column stays straight next to siblings", () => {
  const x = xOf({
    rows: [[0], [1, 3], [2]],
    links: [
      [1, 0],
      [3, 0],
      [2, 1],
      [2, 3],
    ],
    main: [0, 1, 2],
  });
  assert.ok(Math.abs(x[0] - x[1]) < 1e-3);
  assert.ok(Math.abs(x[1] - x[2]) < 1e-3);
  assert.ok(x[3] >= x[1] + 40 + GAP - 1e-9);
});

test("the bends of a long link are a straight lane outside of the widest row", () => {
  // Cells 0, 1, 2, 3 are a column; 4 and 5 are the bends of a link from 3 to 0.
  const x = xOf({
    rows: [[0], [1, 4], [2, 5], [3]],
    links: [
      [1, 0],
      [2, 1],
      [3, 2],
      [4, 0],
      [5, 4],
      [3, 5],
    ],
    bends: [4, 5],
    main: [0, 1, 2, 3],
  });
  assert.equal(x[4], x[5]);
  assert.ok(x[4] >= x[1] + 20 + GAP - 1e-9);
});
