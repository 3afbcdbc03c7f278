// @ts-check
/** Source lines that differ between two executions. */

import { rowWith } from "../../payload/lazy_rows.js";
import { groupBy } from "../memory/rows_held_at_peak.js";
import { addPair, heldPair } from "./bytes_more_and_less.js";

/** @typedef {import("../../types.js").SceneComparisonRow} Row */

const SUMS = /** @type {const} */ (["saved", "recomputed", "nodes", "time_ns"]);

/** @typedef {{row: Row, name: string, pair: number[]}} Place a line or module, and its bytes held */

export const differs = (/** @type {number[]} */ [before, after]) => before !== after;

/**
 * @param {Row[]} rows
 * @returns {Place[]} the lines that differ: those of one side first, then those that differ most
 */
export function linesThatDiffer(rows) {
  const held = heldPair(rows);
  // A line that runs in other modules is the same line.
  const lines = rows.filter(({ kind, merged }) => kind === "line" && merged);
  const places = groupBy(lines, ({ label }) => label).map((parts) => {
    const sum = (/** @type {(row: Row) => number[]} */ pairOf) => parts.map(pairOf).reduce(addPair);
    const numbers = parts.map(({ lines: [first, second = first] }) => [first, second]);
    const own = [0, 1].map((side) => Math.max(...numbers.map((each) => each[side])));
    const changed = parts.find(({ status, other_nodes }) => status === "changed" && other_nodes);
    const status = !own[0] === !own[1] ? "changed" : own[0] ? "removed" : "added";
    const row = rowWith(parts[0], {
      ...{ depth: 1, status, lines: own, other_nodes: changed?.other_nodes ?? "" },
      ...Object.fromEntries(SUMS.map((field) => [field, sum((part) => part[field])])),
    });
    return { name: row.label, row, pair: sum(held) };
  });
  const isNew = (/** @type {Place} */ { row }) => row.status !== "changed";
  const change = (/** @type {number[]} */ [before, after]) => Math.abs(after - before);
  const bytes = (/** @type {Place} */ { row }) => change(row.saved) + change(row.recomputed);
  // What only one of them has is the cause, if there is one.
  return places
    .filter(
      (line) =>
        isNew(line) ||
        line.row.other_nodes ||
        differs(line.pair) ||
        SUMS.slice(0, 3).some((name) => differs(line.row[name])),
    )
    .sort(
      (a, b) =>
        Number(isNew(b)) - Number(isNew(a)) ||
        change(b.pair) - change(a.pair) ||
        bytes(b) - bytes(a),
    );
}
