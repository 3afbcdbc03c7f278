// @ts-check
/** Table rows that compare the ops of a forward with those of its recomputation. */

import { h } from "../../dom.js";

/** @typedef {import("../../types.js").SceneDiffRow} DiffRow */

/** @type {Record<string, [symbol: string, label: string]>} */
export const STATUS_LABELS = {
  same: ["=", "same"],
  changed: ["≠", "changed"],
  replaced: ["≠", "replaced"],
  other_input: ["≠", "other input"],
  added: ["+", "only in recompute"],
  removed: ["−", "only in forward"],
  cached: ["↻", "cached by the policy"],
  not_rerun: ["□", "not recomputed"],
};

/**
 * @param {DiffRow} row
 * @returns {boolean}
 */
export function differs(row) {
  return !["same", "cached", "not_rerun"].includes(row.status);
}

/**
 * Group consecutive rows without a difference, where more than three have the same status.
 *
 * @param {DiffRow[]} rows
 * @returns {DiffRow[][]}
 */
export function foldRows(rows) {
  /** @type {DiffRow[][]} */
  const parts = [];
  for (const row of rows) {
    const last = parts[parts.length - 1];
    if (last && last[0].status === row.status && !differs(row)) last.push(row);
    else parts.push([row]);
  }
  return parts.flatMap((part) => (part.length > 3 ? [part] : part.map((row) => [row])));
}

/**
 * @param {DiffRow[]} part
 * @returns {HTMLElement}
 */
export function foldedRow(part) {
  const { status } = part[0];
  const span = (/** @type {number[]} */ numbers) =>
    numbers[0] ? `${numbers[0]}–${numbers[numbers.length - 1]}` : "";
  const folded = (
    /** @type {"forward" | "recompute"} */ run,
    /** @type {string} */ range,
    /** @type {string[]} */ ops,
  ) =>
    h(
      "td",
      { class: `agv-diff-folded agv-diff-${run}`, attrs: { colspan: 3 } },
      range && h("span", "agv-diff-nr", range),
      range && [...new Set(ops)].join(", "),
    );
  const [forward, recompute] = [
    part.map((row) => row.forward_op),
    part.map((row) => row.recompute_op),
  ];
  return h(
    "tr",
    `agv-diff-${status}`,
    symbolCell(status, STATUS_LABELS[status][1]),
    folded("forward", span(part.map((row) => row.forward_nr)), forward),
    folded("recompute", span(part.map((row) => row.recompute_nr)), recompute),
  );
}

/**
 * @param {string} status
 * @param {string} label
 * @returns {HTMLElement}
 */
function symbolCell(status, label) {
  return h("td", "agv-diff-symbol", h("b", "", STATUS_LABELS[status][0]), label);
}

/**
 * @param {DiffRow} row
 * @param {boolean} first whether no row before it differs
 * @returns {HTMLElement}
 */
export function diffRow(row, first) {
  const firstDifference = first && differs(row);
  const label = firstDifference ? "first difference" : row.policy || STATUS_LABELS[row.status][1];
  const [forwardShape, recomputeShape] = shapePair(row.forward_shape, row.recompute_shape);
  return h(
    "tr",
    `agv-diff-${row.status} ${firstDifference ? "agv-diff-first" : ""}`,
    symbolCell(row.status, label),
    ...side("forward", row.forward_nr, row.forward_op, forwardShape, row.forward_line),
    ...side("recompute", row.recompute_nr, row.recompute_op, recomputeShape, row.recompute_line),
  );
}

/**
 * Return the cells of one side of a row, hatched if the op is absent.
 *
 * @param {"forward" | "recompute"} run
 * @param {number} number
 * @param {string} op
 * @param {Node[]} shape
 * @param {number} line
 * @returns {HTMLElement[]}
 */
function side(run, number, op, shape, line) {
  const place = `agv-diff-${run}`;
  if (!number) return [h("td", { class: `agv-diff-absent ${place}`, attrs: { colspan: 3 } })];
  return [
    h("td", `agv-diff-op ${place}`, h("span", "agv-diff-nr", String(number)), op),
    h("td", `agv-mono ${place}`, ...shape),
    h("td", "agv-mono agv-muted agv-right", line ? String(line) : ""),
  ];
}

/**
 * Return two shapes with the sizes that differ marked.
 *
 * @param {string} forward
 * @param {string} recompute
 * @returns {[Node[], Node[]]}
 */
function shapePair(forward, recompute) {
  const [a, b] = [forward.split("×"), recompute.split("×")];
  const marked = (/** @type {string[]} */ sizes, /** @type {string[]} */ others) =>
    sizes.flatMap((size, at) => [
      document.createTextNode(at ? "×" : ""),
      h("span", forward && recompute && size !== others[at] ? "agv-diff-size" : "", size),
    ]);
  return [marked(a, b), marked(b, a)];
}
