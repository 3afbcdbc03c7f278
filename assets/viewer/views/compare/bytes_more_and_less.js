// @ts-check
/** The bytes that each module holds more or less in one of two executions, and bars for them. */

import { h } from "../../dom.js";
import { formatBytes, mergeNumbers, nameRange } from "../../scene/format_numbers_and_names.js";
import { rowWith } from "../../payload/lazy_rows.js";

/** @typedef {import("../../types.js").SceneComparisonRow} Row */

/**
 * @param {number[]} a
 * @param {number[]} b
 */
export const addPair = (a, b) => a.map((value, side) => value + b[side]);

/**
 * @param {Row[]} rows
 * @returns {boolean} whether their numbers are means of several steps
 */
export const hasSeveralSteps = (rows) =>
  rows.some(({ steps, left_out }) => left_out.some(Boolean) || Math.max(0, ...steps) > 1);

/**
 * Return a function for the bytes of a row in both: those held at the peak, or, where only their
 * total is known, those that are saved.
 *
 * @param {Row[]} rows
 * @returns {(row: Row) => number[]}
 */
export const heldPair = (rows) =>
  isHeldKnown(rows) ? ({ at_peak }) => at_peak : (row) => addPair(row.saved, row.recomputed);

/** @param {Row[]} rows */
export const isHeldKnown = (rows) =>
  rows.some(({ kind, at_peak }) => kind === "line" && at_peak.some(Boolean));

/**
 * @param {number} change
 * @param {(value: number) => string} format
 * @returns {string} "\u22127.1 MB"
 */
export const signed = (change, format) =>
  `${change < 0 ? "\u2212" : "+"}${format(Math.abs(change))}`;

/**
 * @param {number} nbytes
 * @param {number} most of all bars
 * @returns {HTMLElement} a bar to the left for less, to the right for more, with the number
 */
export function differenceBar(nbytes, most) {
  const bar = h("span");
  const width = (50 * Math.abs(nbytes)) / (most || 1);
  bar.style.width = `max(1px, ${width}%)`;
  bar.style.marginLeft = `${50 - (nbytes < 0 ? width : 0)}%`;
  return h(
    "span",
    `agv-more-less agv-more-${nbytes > 0 ? "bytes" : nbytes ? "less" : "none"}`,
    h("span", "agv-track", nbytes && bar),
    nbytes ? signed(nbytes, formatBytes) : "same",
  );
}

/**
 * Return the name of the modules that a row adds up.
 *
 * @param {Row[]} rows
 * @param {Row} row
 * @returns {string} "h.0\u20135" of "h.*"
 */
export function mergedName(rows, { kind, module, label }) {
  // A line has a text, which may contain a power.
  if (kind === "line" || !label.includes("*")) return label;
  const own = rows
    .filter((row) => row.kind === "module" && !row.merged)
    .map((row) => row.module)
    .filter((name) => mergeNumbers(name) === module)
    .sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  return own.length ? nameRange(own[0], own[own.length - 1]) : label;
}

/**
 * @param {Row[]} rows
 * @returns {import("./source_lines_that_differ.js").Place[]} of the modules whose bytes differ; a
 *   module contains those below it
 */
export function modulesThatDiffer(rows) {
  const held = heldPair(rows);
  const total = rows.find(({ kind }) => kind === "total");
  const found = rows
    .filter(({ kind, merged, module }) => kind === "module" && merged && module)
    .map((row) => ({ row, name: mergedName(rows, row), pair: held(row) }));
  const whole = total && found.length > 0 && held(total);
  const parts = found
    .filter(({ row }) => row.depth === 1)
    .reduce((sum, { pair }) => addPair(sum, pair), [0, 0]);
  if (whole) {
    const rest = whole.map((value, side) => value - parts[side]);
    found.unshift({ row: rowWith(total, { depth: 0 }), name: "all", pair: whole });
    found.push({ row: rowWith(total, { depth: 1 }), name: "outside of modules", pair: rest });
  }
  return found.filter(({ pair: [a, b] }) => a !== b);
}
