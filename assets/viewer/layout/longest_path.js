// @ts-check
/**
 * The longest way through a group: its main column.
 *
 * `autogradviz/scene/ways.py` does the same sums in the same order.
 */

/**
 * The cells of one longest way from the bottom of a group to its top; of several ways as long
 * as each other, the one in the middle.
 *
 * @param {import("../types.js").SceneGroup} group
 * @returns {Set<number>}
 */
export function longestWay(group) {
  const position = group.cells.map(() => 0);
  group.rows.forEach((row) => row.forEach((cell, i) => (position[cell] = i)));
  /** @type {number[][]} */
  const uppers = group.cells.map(() => []);
  for (const { path, reversed } of group.links) {
    const [source, target] = [path[0], path[path.length - 1]];
    const [lower, upper] = reversed ? [target, source] : [source, target];
    uppers[lower].push(upper);
  }
  const up = group.cells.map(() => 0);
  for (const cell of group.rows.flat()) {
    up[cell] = uppers[cell].reduce((most, upper) => Math.max(most, up[upper] + 1), 0);
  }
  const longest = up.reduce((most, length) => Math.max(most, length), 0);
  /** @type {Set<number>} */
  const way = new Set();
  let ends = group.cells.map((_, cell) => cell).filter((cell) => up[cell] === longest && longest);
  while (ends.length) {
    ends.sort((a, b) => position[a] - position[b] || a - b);
    const cell = ends[Math.floor((ends.length - 1) / 2)];
    way.add(cell);
    ends = uppers[cell].filter((upper) => up[upper] === up[cell] - 1);
  }
  return way;
}
