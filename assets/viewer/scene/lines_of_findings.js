// @ts-check
/** The lines that findings are about. */

import { placeKey } from "./source_line_costs.js";

/**
 * @typedef {object} LineMark
 * @property {"culprit" | "victim"} tag
 * @property {string} text of the line
 * @property {string} filename
 * @property {number} lineno
 * @property {boolean} hint whether the finding is one
 */

/**
 * Return the lines of findings, the more certain ones first. One without a line is at its node's.
 *
 * @param {Pick<import("../types.js").Scene, "findings" | "nodes">} scene
 * @returns {Map<string, LineMark>} by the key of a place
 */
export function linesOfFindings({ findings, nodes }) {
  /** @type {Map<string, LineMark>} */
  const marks = new Map();
  for (const each of findings) {
    const hint = each.confidence === "hint";
    const own = each.culprit_line || each.victim_line ? undefined : nodes[each.nodes[0]];
    for (const [tag, filename, lineno, text] of /** @type {const} */ ([
      ["culprit", each.culprit_file, each.culprit_line, each.culprit_text],
      ["victim", each.victim_file, each.victim_line, each.victim_text],
      ["victim", own?.filename, own?.lineno ?? 0, ""],
    ])) {
      if (!filename || !lineno) continue;
      const key = placeKey({ filename, lineno });
      const known = marks.get(key);
      if (known?.tag === "culprit" || (known && tag === "victim")) continue;
      marks.set(key, { tag, text, filename, lineno, hint: known?.hint === false ? false : hint });
    }
  }
  return marks;
}
