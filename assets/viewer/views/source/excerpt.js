// @ts-check
/** Lines of source with some of them marked. */

import { h } from "../../dom.js";
import { formatPlace } from "../../scene/format.js";

/**
 * @typedef {object} Mark
 * @property {number} line
 * @property {"culprit" | "victim" | "here"} kind
 * @property {string} tag word at the line's right
 * @property {string} text the line, where the scene has no source
 */

const AROUND = 2;

/**
 * The marked lines of one file and what stands around them.
 *
 * @param {import("../../scene/scene_index.js").Atlas} atlas
 * @param {string} filename
 * @param {Mark[]} marks
 * @param {number} [around] how many lines before and after each
 * @returns {HTMLElement}
 */
export function excerpt(atlas, filename, marks, around = AROUND) {
  const source = atlas.source.get(filename);
  /** @type {Map<number, string>} */
  const shown = new Map();
  for (const mark of marks) {
    for (let line = mark.line - around; line <= mark.line + around; line++) {
      const text = source?.get(line) ?? (line === mark.line ? mark.text : undefined);
      if (text !== undefined) shown.set(line, text);
    }
  }
  const block = h("div", { class: "agv-source" });
  const numbers = [...shown.keys()].sort((a, b) => a - b);
  const margin = commonIndent([...shown.values()]);
  numbers.forEach((number, at) => {
    if (at && number > numbers[at - 1] + 1) block.append(h("div", { class: "agv-source-gap" }));
    const text = /** @type {string} */ (shown.get(number)).slice(margin);
    block.append(
      sourceLine(
        number,
        text,
        marks.find((mark) => mark.line === number),
      ),
    );
  });
  return block;
}

/**
 * @param {number} number
 * @param {string} text
 * @param {Mark | undefined} mark
 * @returns {HTMLElement}
 */
function sourceLine(number, text, mark) {
  return h(
    "div",
    { class: `agv-source-line ${mark ? `agv-${mark.kind}` : ""}` },
    h("span", { class: "agv-source-number", text: String(number) }),
    h("code", { text: text || " ", title: text.trim() }),
    mark?.tag && h("span", { class: "agv-source-tag", text: mark.tag }),
  );
}

/**
 * A finding's explanation: its indented lines are code.
 *
 * @param {string} text
 * @returns {HTMLElement}
 */
export function explanation(text) {
  const block = h("div", { class: "agv-explanation" });
  for (const line of text.split("\n")) {
    const tag = /^\s{2,}\S/.test(line) ? "code" : "p";
    block.append(h(tag, { class: "agv-text", text: tag === "code" ? line.trim() : line }));
  }
  return block;
}

/**
 * What to write instead; where it is no code but remarks alone, in plain words.
 *
 * @param {string} fix
 * @returns {HTMLElement}
 */
export function fixOf(fix) {
  const lines = fix.split("\n");
  if (!lines.every((line) => /^\s*(#|$)/.test(line))) {
    return h("pre", { class: "agv-fix", text: fix });
  }
  const words = lines.map((line) => line.replace(/^\s*#\s?/, "")).join(" ");
  return h("p", { class: "agv-text agv-fix-words", text: words });
}

/**
 * @param {string[]} lines
 * @returns {number}
 */
function commonIndent(lines) {
  const indents = lines
    .filter((line) => line.trim())
    .map((line) => line.length - line.trimStart().length);
  return indents.length ? Math.min(...indents) : 0;
}

/**
 * A finding's culprit and victim, together where they stand in one file.
 *
 * @param {import("../../scene/scene_index.js").Atlas} atlas
 * @param {import("../../types.js").SceneFinding} finding
 * @param {number} [around]
 * @returns {HTMLElement[]}
 */
export function findingSource(atlas, finding, around) {
  /** @type {Map<string, Mark[]>} */
  const files = new Map();
  const add = (/** @type {string} */ file, /** @type {Mark} */ mark) => {
    const marks = files.get(file) ?? [];
    files.set(file, marks);
    if (mark.line && !marks.some((other) => other.line === mark.line)) marks.push(mark);
  };
  const { culprit_file, culprit_line, culprit_text, victim_file, victim_line, victim_text } =
    finding;
  if (culprit_file) {
    add(culprit_file, { line: culprit_line, kind: "culprit", tag: "culprit", text: culprit_text });
  }
  if (victim_file) {
    add(victim_file, { line: victim_line, kind: "victim", tag: "suffers", text: victim_text });
  }
  return [...files].map(([file, marks]) =>
    h(
      "div",
      { class: "agv-source-file" },
      h("div", {
        class: "agv-muted agv-mono",
        title: file,
        text: formatPlace(file, marks.length === 1 ? marks[0].line : 0),
      }),
      excerpt(atlas, file, marks, around),
    ),
  );
}
