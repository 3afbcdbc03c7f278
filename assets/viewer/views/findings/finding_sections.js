// @ts-check
/** Parts of a finding: source of culprit and victim, explanation, fix. */

import { h } from "../../dom.js";
import { formatPlace } from "../../scene/format_numbers_and_names.js";
import { excerpt } from "../source/excerpt.js";

/** @typedef {import("../source/excerpt.js").MarkedLine} MarkedLine */
/** @typedef {{culprit_file: string, culprit_line: number, victim_file: string, victim_line: number}} FindingLines */

/**
 * Return a block with a small title.
 *
 * @param {string} title
 * @param {HTMLElement[]} children
 * @returns {HTMLElement}
 */
export function block(title, ...children) {
  return h("div", "agv-block", h("h4", "", title), ...children);
}

/**
 * Return a finding's explanation; its indented lines are code.
 *
 * @param {string} text
 * @param {FindingLines} [finding] whose lines are shown beside it
 * @returns {HTMLElement}
 */
export function explanationOf(text, finding) {
  const paragraphs = h("div", "agv-explanation");
  for (const line of (finding ? withoutLines(text, finding) : text).split("\n")) {
    // Source is indented by 8, its place by 4; ops and tensors by 2.
    const indent = line.search(/\S|$/);
    const style = indent >= 8 ? "" : indent >= 2 ? "agv-mono agv-muted" : "";
    paragraphs.append(
      h(indent >= 8 ? "code" : "p", { class: `agv-text ${style}`, text: line.trim() }),
    );
  }
  return paragraphs;
}

/**
 * Return an explanation with the places of culprit and victim instead of their code.
 *
 * @param {string} text
 * @param {FindingLines} finding
 * @returns {string}
 */
function withoutLines(text, { culprit_file, culprit_line, victim_file, victim_line }) {
  // Paths of an explanation are relative to the folder of the program.
  const shown = [`/${culprit_file}:${culprit_line}`, `/${victim_file}:${victim_line}`];
  return text.replace(
    /:\n {2,}(\S.*?):(\d+), in .*\n {2,}\S.*(?=\n|$)/g,
    (whole, file, line, at) => {
      if (!shown.some((each) => each.endsWith(`/${file}:${line}`))) return whole;
      const place = formatPlace(file, Number(line));
      const before = text.slice(text.lastIndexOf("\n", at) + 1, at);
      return before.includes(place) ? "." : ` (${place}).`;
    },
  );
}

/**
 * Return a finding's fix: as code, or as text if it consists of comments only.
 *
 * @param {string} fix
 * @returns {HTMLElement}
 */
export function fixBlock(fix) {
  const lines = fix.split("\n");
  if (!lines.every((line) => /^\s*(#|$)/.test(line))) {
    return h("pre", "agv-fix", fix);
  }
  const text = lines.map((line) => line.replace(/^\s*#\s?/, "")).join(" ");
  return h("p", "agv-text agv-fix-text", sentence(text));
}

/**
 * Return a text with a capital letter, unless it begins with code, and with a period.
 *
 * @param {string} text
 * @returns {string}
 */
export function sentence(text) {
  const start = text.replace(/^[a-z]+(?= )/, (word) => word[0].toUpperCase() + word.slice(1));
  return /[\w)]$/.test(start) ? `${start}.` : start;
}

/**
 * Return excerpts with a finding's culprit and victim, one for each file.
 *
 * @param {import("../../scene/scene_index.js").SceneIndex} sceneIndex
 * @param {import("../../types.js").SceneFinding} finding
 * @param {number} [context] number of lines before and after each
 * @returns {HTMLElement[]}
 */
export function findingSource(sceneIndex, finding, context) {
  const { culprit_file, culprit_line, culprit_text, victim_file, victim_line, victim_text } =
    finding;
  const lines = [
    { filename: culprit_file, line: culprit_line, kind: "culprit", text: culprit_text },
    { filename: victim_file, line: victim_line, kind: "victim", text: victim_text },
  ].map((each) => ({ ...each, tag: each.kind }));
  return excerpts(sceneIndex, /** @type {PlacedLine[]} */ (lines), context);
}

/** @typedef {MarkedLine & {filename: string}} PlacedLine */

/**
 * Return excerpts with marked lines, one for each file, below its name.
 *
 * @param {import("../../scene/scene_index.js").SceneIndex} sceneIndex
 * @param {PlacedLine[]} lines those without a file are left out, and repeated ones
 * @param {number} [context] number of lines before and after each
 * @returns {HTMLElement[]}
 */
export function excerpts(sceneIndex, lines, context) {
  /** @type {Map<string, MarkedLine[]>} */
  const files = new Map();
  for (const mark of lines) {
    const marks = files.get(mark.filename) ?? [];
    if (mark.filename) files.set(mark.filename, marks);
    if (mark.line && !marks.some((other) => other.line === mark.line)) marks.push(mark);
  }
  return [...files].map(([file, marks]) =>
    h(
      "div",
      "agv-source-file",
      h("div", {
        class: "agv-muted agv-mono",
        title: file,
        text: formatPlace(file, marks.length === 1 ? marks[0].line : 0),
      }),
      excerpt(sceneIndex, file, marks, context),
    ),
  );
}
