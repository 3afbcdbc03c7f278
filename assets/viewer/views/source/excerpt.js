// @ts-check
/** Source excerpts with marked lines. */

import { h } from "../../dom.js";

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
  const numbers = [...lines.keys()].sort((a, b) => a - b);
  const margin = commonIndent([...lines.values()]);
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
    h("code", { text: text || " ", title: text.trim() }),
    mark?.tag && h("span", "agv-source-tag", mark.tag),
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
