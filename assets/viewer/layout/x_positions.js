// @ts-check
/**
 * The x of every cell of a group: straight columns without overlaps.
 *
 * `autogradviz/scene/layout/rows_and_x_positions.py` explains the algorithm, and does the same
 * arithmetic in the same order.
 */

const CELL_GAP = 12;
export const BEND_WEIGHT = 1;
export const NODE_WEIGHT = 1000;
export const MAIN_WEIGHT = 1e9;
const SWEEPS = 7;
const FEW_SWEEPS = 3;
const MANY_CELLS = 10_000;
const LANE_SWEEPS = 3;

/** @typedef {[cell: number, shift: number, weight: number]} Neighbor */

/**
 * @typedef {object} Grid
 * @property {number[][]} rows
 * @property {boolean[]} isBend
 * @property {number[]} weight
 * @property {Neighbor[][]} above
 * @property {Neighbor[][]} below
 * @property {number[]} left
 * @property {number[]} right
 * @property {number[]} x
 */

/**
 * Set the x of every cell's axis.
 *
 * @param {Grid} grid
 */
export function setXPositions(grid) {
  const { rows, x, above, below } = grid;
  const alignTo = (/** @type {number[]} */ row, /** @type {Neighbor[][]} */ neighbors) => {
    const desired = row.map((cell) => desiredX(x, neighbors[cell], cell));
    settle(grid, row, desired);
  };
  for (const row of rows) settle(grid, row, Array(row.length).fill(0));
  const sweeps = x.length < MANY_CELLS ? SWEEPS : FEW_SWEEPS;
  for (let sweep = 0; sweep < sweeps; sweep++) {
    if (sweep % 2 === 0) for (const row of rows) alignTo(row, above);
    else for (const row of [...rows].reverse()) alignTo(row, below);
  }
  if (grid.isBend.includes(true)) straightenLanes(grid);
}

/**
 * Return the weighted median of the positions at which a cell is in line with its neighbors.
 *
 * @param {number[]} x
 * @param {Neighbor[]} neighbors
 * @param {number} own
 * @returns {number}
 */
function desiredX(x, neighbors, own) {
  if (!neighbors.length) return x[own];
  if (neighbors.length === 1) return x[neighbors[0][0]] + neighbors[0][1];
  const positions = neighbors.map(([cell, shift, weight]) => [x[cell] + shift, weight]);
  positions.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  let rest = positions.reduce((sum, [, weight]) => sum + weight, 0) / 2;
  for (let i = 0; i < positions.length; i++) {
    rest -= positions[i][1];
    if (rest < 0) return positions[i][0];
    if (rest === 0) return (positions[i][0] + positions[i + 1][0]) / 2;
  }
  return x[own];
}

/**
 * Place a row's cells as near to their desired positions as order and distances allow.
 *
 * @param {Grid} grid
 * @param {number[]} row
 * @param {number[]} desired
 */
function settle(grid, row, desired) {
  if (row.length === 1) {
    grid.x[row[0]] = desired[0];
    return;
  }
  let offset = 0;
  /** @type {number[]} */
  const offsets = [];
  /** @type {{sum: number, weight: number, count: number}[]} */
  const blocks = [];
  row.forEach((cell, i) => {
    if (i) offset += grid.right[row[i - 1]] + CELL_GAP + grid.left[cell];
    offsets.push(offset);
    const weight = grid.weight[cell];
    blocks.push({ sum: (desired[i] - offset) * weight, weight, count: 1 });
    while (blocks.length > 1) {
      const last = blocks[blocks.length - 1];
      const before = blocks[blocks.length - 2];
      if (before.sum / before.weight <= last.sum / last.weight) break;
      blocks.pop();
      before.sum += last.sum;
      before.weight += last.weight;
      before.count += last.count;
    }
  });
  let i = 0;
  for (const { sum, weight, count } of blocks) {
    for (let n = 0; n < count; n++, i++) grid.x[row[i]] = sum / weight + offsets[i];
  }
}

/**
 * Move the outer bends outward until every lane is straight.
 *
 * @param {Grid} grid
 */
function straightenLanes(grid) {
  /** @type {[limit: number, run: number[]][]} */
  const lefts = [];
  /** @type {[limit: number, run: number[]][]} */
  const rights = [];
  for (const row of grid.rows) {
    const from = row.findIndex((cell) => !grid.isBend[cell]);
    const to = row.findLastIndex((cell) => !grid.isBend[cell]);
    const first = row[from];
    const last = row[to];
    lefts.push([grid.x[first] - grid.left[first] - CELL_GAP, row.slice(0, from).reverse()]);
    rights.push([grid.x[last] + grid.right[last] + CELL_GAP, row.slice(to + 1)]);
  }
  for (const [runs, side] of /** @type {const} */ ([
    [lefts, -1],
    [rights, 1],
  ])) {
    for (const [limit, run] of runs) {
      run.forEach((cell, i) => (grid.x[cell] = limit + side * i * CELL_GAP));
    }
    for (let sweep = 0; sweep < LANE_SWEEPS; sweep++) {
      for (const [limit, run] of runs) pushOut(grid, limit, run, side);
      for (const [limit, run] of [...runs].reverse()) pushOut(grid, limit, run, side);
    }
  }
}

/**
 * Move each bend of a run outward to its limit, or to the neighboring bends of its lane.
 *
 * @param {Grid} grid
 * @param {number} limit
 * @param {number[]} run
 * @param {number} side
 */
function pushOut(grid, limit, run, side) {
  for (const cell of run) {
    let out = Math.max(side * limit, side * grid.x[cell]);
    for (const neighbors of [grid.above[cell], grid.below[cell]]) {
      for (const [other] of neighbors) {
        if (grid.isBend[other]) out = Math.max(out, side * grid.x[other]);
      }
    }
    grid.x[cell] = side * out;
    limit = grid.x[cell] + side * CELL_GAP;
  }
}
