// @ts-check
/** The source lines of a region as its forward and its recomputation ran them, side by side. */

import { h } from "../../dom.js";
import { formatPlace } from "../../scene/format_numbers_and_names.js";
import { excerpt } from "../source/excerpt.js";
import { differs } from "./diff_table_rows.js";

/** @typedef {import("../../types.js").SceneDiffRow} DiffRow */
/** @typedef {import("../../types.js").SceneChange} Change */
/** @typedef {"forward" | "recompute"} Run */

const MAX_VALUES = 2;

/**
 * Return the lines on which two runs differ, once as each ran them.
 *
 * @param {import("../../shared_view_state.js").Store} store
 * @param {DiffRow[]} rows of the region
 * @param {Change[]} changes of the region
 * @returns {HTMLElement | null} null if no line is known to differ
 */
export function sideBySide({ sceneIndex }, rows, changes) {
  const different = rows.filter((row) => differs(row) && row.filename);
  const file = different[0]?.filename;
  if (!file) return null;
  const lines = new Set();
  for (const row of different.filter((each) => each.filename === file)) {
    for (const line of [row.forward_line, row.recompute_line]) if (line) lines.add(line);
  }
  const written = changes.filter(({ filename, lineno }) => filename === file && lineno);
  for (const { lineno } of written) lines.add(lineno);
  // The line after the update that reads the state, as a condition does.
  const source = sceneIndex.source.get(file);
  const readers = written.flatMap((change) =>
    [...(source ?? [])]
      .filter(
        ([line, text]) =>
          line > change.lineno && line < Math.max(...lines) && text.includes(change.name),
      )
      .slice(0, change.before_next ? 1 : 0)
      .map(([line]) => ({ line, change })),
  );
  const values = (written.length ? written : changes).slice(0, MAX_VALUES);
  const column = (/** @type {Run} */ run) => {
    const isForward = run === "forward";
    const marks = [...lines].map((line) => markOf(run, line, rows, written));
    for (const { line, change } of readers) {
      const tag = `${change.name} is ${isForward ? change.before_next : change.after_next}`;
      if (!lines.has(line)) marks.push({ line, kind: "changed", tag, text: "" });
    }
    const state = values.map(
      (each) => `at entry: ${each.name} = ${isForward ? each.before : each.after}`,
    );
    return h(
      "div",
      {},
      h("h4", isForward ? "" : "agv-recompute", isForward ? "Forward" : "Recompute"),
      h("p", "agv-mono agv-muted", state.join(" · ")),
      excerpt(sceneIndex, file, marks, 1),
    );
  };
  return h(
    "section",
    { class: "agv-sources", title: formatPlace(file, 0) },
    column("forward"),
    column("recompute"),
  );
}

/**
 * @param {Run} run
 * @param {number} line
 * @param {DiffRow[]} rows
 * @param {Change[]} written
 * @returns {import("../source/excerpt.js").MarkedLine}
 */
function markOf(run, line, rows, written) {
  const change = written.find(({ lineno }) => lineno === line);
  const ran = rows.filter((row) => row[`${run}_line`] === line);
  const ranOnce = rows.some((row) => row.forward_line === line || row.recompute_line === line);
  if (change && (ran.length || !ranOnce)) {
    const [from, to] =
      run === "forward" ? [change.before, change.before_next] : [change.after, change.after_next];
    const tag = to ? `${from} → ${to}` : `from ${from}`;
    return { line, kind: "culprit", tag, text: "" };
  }
  if (!ran.length) return { line, kind: "absent", tag: "no op ran", text: "" };
  const first = ran.find(differs);
  const kind = ran.every(({ status }) => status === "added") ? "added" : "changed";
  const ops = ran.filter(({ status }) => status === "replaced").map((row) => row[`${run}_op`]);
  const tag = ops.length
    ? `ran ${ops.join(", ")}`
    : first
      ? `${first[`${run}_op`]} ${first[`${run}_shape`]}`
      : "";
  return { line, kind, tag, text: "" };
}
