// @ts-check
/** Source excerpts with marked lines. */

import { h } from "../../dom.js";
import { placeKey } from "../../scene/source_line_costs.js";

/**
 * @typedef {object} MarkedLine
 * @property {number} line
 * @property {"culprit" | "victim" | "selected-line" | "absent" | "added" | "changed"} kind
 * @property {string} tag shown on the right of the line
 * @property {string} text shown if the scene does not have the line
 */

const CONTEXT = 2;

/**
 * Return the marked lines of a file with the lines around them.
 *
 * @param {import("../../scene/scene_index.js").SceneIndex} sceneIndex
 * @param {string} filename
 * @param {MarkedLine[]} marks
 * @param {number} [context] number of lines before and after each
 * @returns {HTMLElement}
 */
export function excerpt(sceneIndex, filename, marks, context = CONTEXT) {
  const source = sceneIndex.source.get(filename);
  /** @type {Map<number, string>} */
  const lines = new Map();
  for (const mark of marks) {
    for (let line = mark.line - context; line <= mark.line + context; line++) {
      const text = source?.get(line) ?? (line === mark.line ? mark.text : undefined);
      if (text !== undefined) lines.set(line, text);
    }
  }
  const block = h("div", "agv-source");
  const isMarked = (/** @type {number} */ number) => marks.some(({ line }) => line === number);
  const numbers = functionsOf(lines, isMarked).filter(
    (lineno) => isMarked(lineno) || !sceneIndex.docstrings.has(placeKey({ filename, lineno })),
  );
  const margin = commonIndent(numbers.map((number) => lines.get(number) ?? ""));
  numbers.forEach((number, at) => {
    if (at && number > numbers[at - 1] + 1) block.append(h("div", "agv-source-gap"));
    const text = /** @type {string} */ (lines.get(number)).slice(margin);
    const mark = marks.find((each) => each.line === number);
    block.append(sourceLine(number, text, mark));
  });
  return block;
}

/**
 * @param {number} number
 * @param {string} text
 * @param {MarkedLine | undefined} mark
 * @returns {HTMLElement}
 */
function sourceLine(number, text, mark) {
  return h(
    "div",
    `agv-source-line ${mark ? `agv-${mark.kind}` : ""}`,
    h("span", "agv-source-number", String(number)),
    codeLine(text, mark?.tag),
  );
}

/**
 * @param {string[]} lines
 * @returns {number} number of leading spaces that all lines have, blank ones apart
 */
function commonIndent(lines) {
  const indents = lines
    .filter((line) => line.trim())
    .map((line) => line.length - line.trimStart().length);
  return indents.length ? Math.min(...indents) : 0;
}

/**
 * Return a line whose wrapped parts hang under its first word. The tag follows the last word, on a
 * row of its own if there is no room.
 *
 * @param {string} text of a line
 * @param {string} [tag]
 * @returns {HTMLElement}
 */
export function codeLine(text, tag) {
  const code = h("code", { title: text.trim() }, ...wordsOf(text));
  code.style.setProperty("--hang", `${text.search(/\S|$/) + 2}ch`);
  if (tag) code.append(h("span", "agv-source-tag", tag));
  return code;
}

/** Behind spaces, commas and operators; not in numbers such as 1e-4. */
export const BREAKS = /(?<=[,\s]|[\w)\]}][-+*/%@|&<>=!]+)(?<!\de-)(?![-+*/%@|&<>=!,\s])/;

/**
 * Return the words of a line of Python, between which it may be broken. A word that is longer than
 * a row is broken behind a period or a bracket.
 *
 * @param {string} text
 * @returns {HTMLElement[]}
 */
export function wordsOf(text) {
  const words = (text.trim() || " ").split(BREAKS);
  return words.map((word) => {
    const parts = word.split(/(?<=[.([])/);
    return h("span", "agv-word", ...parts.map((part) => h("span", "agv-word", part)));
  });
}

/**
 * Return the lines from the `def` of each function to the last one that matters, and those after
 * it up to a blank one or the end of the function.
 *
 * @param {Map<number, string>} lines
 * @param {(lineno: number) => boolean} matters
 * @returns {number[]} all of them if none matters
 */
export function functionsOf(lines, matters) {
  const textOf = (/** @type {number} */ at) => lines.get(at) ?? "";
  const indentOf = (/** @type {number} */ at) => textOf(at).search(/\S/);
  /** @type {Set<number>} */
  const kept = new Set();
  for (const number of lines.keys()) {
    if (!matters(number)) continue;
    let first = number;
    let indent = Infinity;
    for (; lines.has(first); first--) {
      const own = indentOf(first);
      if (own < 0 || own >= indent) continue;
      if (/^\s*(async )?def /.test(textOf(first))) break;
      indent = own;
    }
    const end = lines.has(first) ? indentOf(first) : -1;
    if (end < 0) for (first = number; indentOf(first - 1) >= 0;) first--;
    let last = number;
    while (indentOf(last + 1) > end) last++;
    for (let at = first; at <= last; at++) kept.add(at);
  }
  return [...(kept.size ? kept : lines.keys())].sort((a, b) => a - b);
}

/** Lines without numbers in a row that are folded. */
const FEW = 3;

/**
 * Return the lines that are shown: those that matter, the functions, loops and conditions around
 * them, and single ones between them.
 *
 * @param {Map<number, string>} lines
 * @param {number[]} numbers ascending
 * @param {(lineno: number) => boolean} matters
 * @returns {Set<number>} all of them if none matters
 */
export function linesToShow(lines, numbers, matters) {
  const indentOf = (/** @type {number} */ at) => (lines.get(at) ?? "").search(/\S/);
  /** @type {Set<number>} */
  const kept = new Set();
  let indent = -1;
  for (const number of [...numbers].reverse()) {
    const own = indentOf(number);
    const isAround = own >= 0 && own < indent && /:\s*(#.*)?$/.test(lines.get(number) ?? "");
    if (!isAround && !matters(number)) continue;
    indent = own;
    kept.add(number);
  }
  if (!kept.size) return new Set(numbers);
  let start = 0;
  numbers.forEach((number, at) => {
    if (kept.has(number)) start = at + 1;
    else if (kept.has(numbers[at + 1]) || at === numbers.length - 1) {
      const run = numbers.slice(start, at + 1);
      if (run.length < FEW) for (const each of run) kept.add(each);
    }
  });
  return kept;
}
