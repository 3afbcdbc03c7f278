// @ts-check
/**
 * The x of every cell of one group: straight columns, no overlaps.
 *
 * `autogradviz/scene/columns.py` does the same sums in the same order, and says how it works.
 */

const CELL_GAP = 12;
export const BEND_WEIGHT = 1;
export const NODE_WEIGHT = 1000;
export const MAIN_WEIGHT = 1e9;
const SWEEPS = 7;
const FEW_SWEEPS = 3;
const MANY_CELLS = 10_000;
const LANE_SWEEPS = 3;

/** @typedef {[cell: number, shift: number, weight: number]} Neighbour */

/**
 * @typedef {object} Grid
 * @property {number[][]} rows
 * @property {boolean[]} bend
 * @property {number[]} weight
 * @property {Neighbour[][]} above
 * @property {Neighbour[][]} below
 * @property {number[]} left
 * @property {number[]} right
 * @property {number[]} x
 */

/**
 * Set the x of the axis of every cell.
 *
 * @param {Grid} grid
 */
export function setColumns(grid) {
  const { rows, x, above, below } = grid;
  const ask = (/** @type {number[]} */ row, /** @type {Neighbour[][]} */ neighbours) => {
    const wishes = row.map((cell) => want(x, neighbours[cell], cell));
    settle(grid, row, wishes);
  };
  for (const row of rows) settle(grid, row, Array(row.length).fill(0));
  const sweeps = x.length < MANY_CELLS ? SWEEPS : FEW_SWEEPS;
  for (let sweep = 0; sweep < sweeps; sweep++) {
    if (sweep % 2 === 0) for (const row of rows) ask(row, above);
    else for (const row of [...rows].reverse()) ask(row, below);
  }
  if (grid.bend.includes(true)) straightenLanes(grid);
}

/**
 * The weighted median of where the neighbours would have a cell.
 *
 * @param {number[]} x
 * @param {Neighbour[]} neighbours
 * @param {number} own
 * @returns {number}
 */
function want(x, neighbours, own) {
  if (!neighbours.length) return x[own];
  if (neighbours.length === 1) return x[neighbours[0][0]] + neighbours[0][1];
  const places = neighbours.map(([cell, shift, weight]) => [x[cell] + shift, weight]);
  places.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  let rest = places.reduce((sum, [, weight]) => sum + weight, 0) / 2;
  for (let i = 0; i < places.length; i++) {
    rest -= places[i][1];
    if (rest < 0) return places[i][0];
    if (rest === 0) return (places[i][0] + places[i + 1][0]) / 2;
  }
  return x[own];
}

/**
 * Put a row's cells as near to where they want as order and distances allow.
 *
 * @param {Grid} grid
 * @param {number[]} row
 * @param {number[]} wishes
 */
function settle(grid, row, wishes) {
  if (row.length === 1) {
    grid.x[row[0]] = wishes[0];
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
    blocks.push({ sum: (wishes[i] - offset) * weight, weight, count: 1 });
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
 * Move the outer bends outwards until every lane is straight.
 *
 * @param {Grid} grid
 */
function straightenLanes(grid) {
  /** @type {[limit: number, run: number[]][]} */
  const lefts = [];
  /** @type {[limit: number, run: number[]][]} */
  const rights = [];
  for (const row of grid.rows) {
    const from = row.findIndex((cell) => !grid.bend[cell]);
    const to = row.findLastIndex((cell) => !grid.bend[cell]);
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
 * Move each bend of a run as far out as it has to be, and as the next bends on its way are.
 *
 * @param {Grid} grid
 * @param {number} limit
 * @param {number[]} run
 * @param {number} side
 */
function pushOut(grid, limit, run, side) {
  for (const cell of run) {
    let out = Math.max(side * limit, side * grid.x[cell]);
    for (const neighbours of [grid.above[cell], grid.below[cell]]) {
      for (const [other] of neighbours) {
        if (grid.bend[other]) out = Math.max(out, side * grid.x[other]);
      }
    }
    grid.x[cell] = side * out;
    limit = grid.x[cell] + side * CELL_GAP;
  }
}
