// @ts-check
/** Source lines that differ between two executions, in two columns with their values. */

import { h } from "../../dom.js";
import { addPair, differenceBar, heldPair } from "./bytes_more_and_less.js";
import { formatBytes, plural } from "../../scene/format_numbers_and_names.js";

/** @typedef {import("../../types.js").SceneComparisonRow} Row */

/**
 * Return the lines that differ in two columns, each with its values there.
 *
 * @param {Row[]} rows
 * @returns {HTMLElement | null} null if none differs
 */
export function sourceColumns(rows) {
  /** @type {Map<string, {label: string, lines: number[], sums: Map<string, number[]>, held: number[]}>} */
  const lines = new Map();
  const held = heldPair(rows);
  for (const row of rows) {
    if (row.kind !== "line" || !row.merged) continue;
    const numbers = row.lines.length > 1 ? row.lines : [row.lines[0], row.lines[0]];
    // A line that runs in other modules is the same line.
    const line = lines.get(row.label) ?? {
      label: row.label,
      lines: [0, 0],
      sums: new Map(),
      held: [0, 0],
    };
    lines.set(row.label, line);
    line.lines = line.lines.map((number, side) => number || numbers[side]);
    line.held = addPair(line.held, held(row));
    for (const [name, pair] of /** @type {[string, number[]][]} */ ([
      ["saved", row.saved],
      ["recomputed", row.recomputed],
      ["nodes", row.nodes],
    ])) {
      line.sums.set(name, addPair(line.sums.get(name) ?? [0, 0], pair));
    }
  }
  const isNew = (/** @type {{lines: number[]}} */ { lines: [first, second] }) => !first !== !second;
  const amount = (/** @type {{held: number[]}} */ { held: [a, b] }) => Math.abs(b - a);
  const bytes = (/** @type {{sums: Map<string, number[]>}} */ { sums }) =>
    [...sums].reduce(
      (sum, [name, [before, after]]) => sum + (name === "nodes" ? 0 : Math.abs(after - before)),
      0,
    );
  // What only one of them has is the cause, if there is one.
  const differing = [...lines.values()]
    .filter(
      (line) => isNew(line) || [...line.sums.values()].some(([before, after]) => before !== after),
    )
    .sort(
      (a, b) => Number(isNew(b)) - Number(isNew(a)) || amount(b) - amount(a) || bytes(b) - bytes(a),
    );
  const most = Math.max(0, ...differing.map(amount));
  const cell = (
    /** @type {typeof differing[number]} */ { label, lines: numbers, sums },
    /** @type {0 | 1} */ side,
  ) => {
    const values = [...sums]
      .filter(([, pair]) => pair[0] !== pair[1] && pair[side])
      .map(([name, pair]) =>
        name === "nodes" ? plural(pair[side], "node") : `${name} ${formatBytes(pair[side])}`,
      );
    const isThere = numbers[side] > 0;
    const isOnly = isThere && !numbers[1 - side];
    if (isOnly) values.unshift(side ? "new" : "removed");
    return h(
      "div",
      `agv-two-line ${isThere ? (isOnly ? "agv-two-only" : "") : "agv-absent"}`,
      h("span", "agv-muted", isThere ? String(numbers[side]) : ""),
      h("code", { text: isThere ? label : "", title: label }),
      h("span", "agv-two-value", isThere ? values.join(" · ") || "nothing" : ""),
    );
  };
  if (!differing.length) return null;
  return h(
    "div",
    { class: "agv-two-lines", attrs: { tabindex: 0 } },
    ...differing.flatMap((line) => [
      cell(line, 0),
      cell(line, 1),
      differenceBar(line.held[1] - line.held[0], most),
    ]),
  );
}
