// @ts-check
/**
 * The longest path through a group: its main column.
 *
 * `autogradviz/scene/layout/group_sizes_and_main_column.py` does the same arithmetic in the same
 * order.
 */

/**
 * Return the cells of a longest path from the bottom of a group to its top. Of several paths of
 * that length it is the middle one.
 *
 * @param {import("../types.js").SceneGroup} group
 * @returns {Set<number>}
 */
export function longestPath(group) {
  const position = group.cells.map(() => 0);
  group.rows.forEach((row) => row.forEach((cell, i) => (position[cell] = i)));
  /** @type {number[][]} */
  const uppers = group.cells.map(() => []);
  for (const { path, reversed } of group.links) {
    const [source, target] = [path[0], path[path.length - 1]];
    const [lower, upper] = reversed ? [target, source] : [source, target];
    uppers[lower].push(upper);
  }
  const length = group.cells.map(() => 0);
  for (const cell of group.rows.flat()) {
    length[cell] = uppers[cell].reduce((most, upper) => Math.max(most, length[upper] + 1), 0);
  }
  const longest = length.reduce((most, each) => Math.max(most, each), 0);
  /** @type {Set<number>} */
  const longestCells = new Set();
  let candidates = group.cells
    .map((_, cell) => cell)
    .filter((cell) => length[cell] === longest && longest);
  while (candidates.length) {
    candidates.sort((a, b) => position[a] - position[b] || a - b);
    const cell = candidates[Math.floor((candidates.length - 1) / 2)];
    longestCells.add(cell);
    candidates = uppers[cell].filter((upper) => length[upper] === length[cell] - 1);
  }
  return longestCells;
}
