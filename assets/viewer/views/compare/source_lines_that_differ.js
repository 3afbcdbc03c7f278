// @ts-check
/** Source lines that differ between two executions, in two columns with their values. */

import { h } from "../../dom.js";
import { addPair, differenceBar, heldPair, isHeldKnown } from "./bytes_more_and_less.js";
import {
  dotted,
  formatBytes,
  formatDuration,
  plural,
} from "../../scene/format_numbers_and_names.js";

/** @typedef {import("../../types.js").SceneComparisonRow} Row */

const COMPARED = /** @type {const} */ (["saved", "recomputed", "nodes"]);
const SUMS = /** @type {const} */ ([...COMPARED, "time_ns"]);

/** @param {string} label */
const newLine = (label) => {
  const none = () => [0, 0];
  const sums = { saved: none(), recomputed: none(), nodes: none(), time_ns: none() };
  return { label, lines: none(), held: none(), others: "", ...sums };
};

/** @typedef {ReturnType<typeof newLine>} Line */

const differs = (/** @type {number[]} */ [before, after]) => before !== after;

/**
 * @param {Row[]} rows
 * @returns {Line[]} the lines that differ: those of one side first, then those that differ most
 */
export function linesThatDiffer(rows) {
  /** @type {Map<string, Line>} */
  const lines = new Map();
  const held = heldPair(rows);
  for (const row of rows) {
    if (row.kind !== "line" || !row.merged) continue;
    // A line that runs in other modules is the same line.
    const line = lines.get(row.label) ?? newLine(row.label);
    lines.set(row.label, line);
    const [first, second = first] = row.lines;
    line.lines = [line.lines[0] || first, line.lines[1] || second];
    line.held = addPair(line.held, held(row));
    if (row.status === "changed") line.others ||= row.other_nodes;
    for (const name of SUMS) line[name] = addPair(line[name], row[name]);
  }
  const isNew = (/** @type {Line} */ { lines: [first, second] }) => !first !== !second;
  const change = (/** @type {number[]} */ [before, after]) => Math.abs(after - before);
  const bytes = (/** @type {Line} */ { saved, recomputed }) => change(saved) + change(recomputed);
  // What only one of them has is the cause, if there is one.
  return [...lines.values()]
    .filter(
      (line) =>
        isNew(line) ||
        line.others ||
        differs(line.held) ||
        COMPARED.some((name) => differs(line[name])),
    )
    .sort(
      (a, b) =>
        Number(isNew(b)) - Number(isNew(a)) ||
        change(b.held) - change(a.held) ||
        bytes(b) - bytes(a),
    );
}

/**
 * Return the lines that differ in two columns, each with its values there.
 *
 * @param {Row[]} rows
 * @returns {HTMLElement | null} null if none differs
 */
export function sourceColumns(rows) {
  const differing = linesThatDiffer(rows);
  const known = isHeldKnown(rows);
  const most = Math.max(0, ...differing.map(({ held: [a, b] }) => Math.abs(b - a)));
  const cell = (/** @type {Line} */ line, /** @type {0 | 1} */ side) => {
    const { label, lines: numbers } = line;
    const isOnly = numbers[side] > 0 && !numbers[1 - side];
    const isThere = numbers[side] > 0 || !numbers[1 - side];
    const text = (/** @type {typeof SUMS[number]} */ name) => {
      const value = line[name][side];
      if (name === "time_ns") return isOnly && value && formatDuration(value);
      if (!value || !differs(line[name])) return "";
      return name === "nodes" ? plural(value, "node") : `${name} ${formatBytes(value)}`;
    };
    return h(
      "div",
      `agv-two-line ${isThere ? (isOnly ? "agv-two-only" : "") : "agv-absent"}`,
      h("span", "agv-muted", String(numbers[side] || "")),
      h("code", { text: isThere ? label : "", title: label }),
      h("span", "agv-two-value", isThere ? dotted([rest(line, side), ...SUMS.map(text)]) : ""),
    );
  };
  const rest = (/** @type {Line} */ { held, others }, /** @type {0 | 1} */ side) => {
    if (!differs(held)) return side ? others : "";
    return known && `at peak ${held[side] ? formatBytes(held[side]) : "0"}`;
  };
  if (!differing.length) return null;
  return h(
    "div",
    "agv-two-lines",
    ...differing.flatMap((line) => [
      cell(line, 0),
      cell(line, 1),
      differenceBar(line.held[1] - line.held[0], most),
    ]),
  );
}
