// @ts-check
/** The rows of a forward and its recomputation, side by side. */

import { h } from "../../dom.js";

/** @typedef {import("../../types.js").SceneDiffRow} DiffRow */

export const WORDS = {
  same: ["=", "same"],
  changed: ["≠", "changed"],
  added: ["+", "only in recompute"],
  removed: ["−", "only in forward"],
  cached: ["↻", "kept by the policy"],
  not_rerun: ["□", "not rerun"],
};

/**
 * @param {DiffRow} row
 * @returns {boolean}
 */
export function differs(row) {
  return !["same", "cached", "not_rerun"].includes(row.status);
}

/**
 * Long stretches of rows that agree, together.
 *
 * @param {DiffRow[]} rows
 * @returns {DiffRow[][]}
 */
export function folded(rows) {
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
  const side = (/** @type {string} */ range, /** @type {string[]} */ ops) =>
    h(
      "td",
      { class: "agv-diff-folded", attrs: { colspan: 3 } },
      range && h("span", { class: "agv-diff-nr", text: range }),
      range && [...new Set(ops)].join(", "),
    );
  const [forward, recompute] = [
    part.map((row) => row.forward_op),
    part.map((row) => row.recompute_op),
  ];
  return h(
    "tr",
    { class: `agv-diff-${status}` },
    markOf(status, WORDS[status][1]),
    side(span(part.map((row) => row.forward_nr)), forward),
    side(span(part.map((row) => row.recompute_nr)), recompute),
  );
}

/**
 * @param {keyof typeof WORDS} status
 * @param {string} words
 * @returns {HTMLElement}
 */
function markOf(status, words) {
  return h("td", { class: "agv-diff-mark" }, h("b", { text: WORDS[status][0] }), words);
}

/**
 * @param {DiffRow} row
 * @param {boolean} first whether no row above differs
 * @returns {HTMLElement}
 */
export function diffRow(row, first) {
  const leads = first && differs(row);
  const words = leads ? "first difference" : row.policy || WORDS[row.status][1];
  const [forwardShape, recomputeShape] = shapePair(row.forward_shape, row.recompute_shape);
  return h(
    "tr",
    { class: `agv-diff-${row.status} ${leads ? "agv-diff-first" : ""}` },
    markOf(row.status, words),
    ...side(row.forward_nr, row.forward_op, forwardShape, row.forward_line),
    ...side(row.recompute_nr, row.recompute_op, recomputeShape, row.recompute_line),
  );
}

/**
 * One side of a row, hatched where the op is absent.
 *
 * @param {number} number
 * @param {string} op
 * @param {Node[]} shape
 * @param {number} line
 * @returns {HTMLElement[]}
 */
function side(number, op, shape, line) {
  if (!number) return [h("td", { class: "agv-void", attrs: { colspan: 3 } })];
  return [
    h(
      "td",
      { class: "agv-diff-op" },
      h("span", { class: "agv-diff-nr", text: String(number) }),
      op,
    ),
    h("td", { class: "agv-mono" }, ...shape),
    h("td", { class: "agv-mono agv-muted agv-right", text: line ? String(line) : "" }),
  ];
}

/**
 * Two shapes, with the sizes that differ marked.
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
      h("span", {
        class: forward && recompute && size !== others[at] ? "agv-differs" : "",
        text: size,
      }),
    ]);
  return [marked(a, b), marked(b, a)];
}
