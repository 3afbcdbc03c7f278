// @ts-check
/** Source lines with the bytes that each keeps, by kind. */

import { button, h, listHead } from "../../dom.js";
import { workAt } from "../../scene/progress_at_replayed_time.js";
import { columnOf } from "../../payload/lazy_rows.js";
import { heldCurve, heldIn } from "../../scene/curve_of_bytes_held.js";
import { placeKey } from "../../scene/source_line_costs.js";
import { linesOfFindings } from "../../scene/lines_of_findings.js";
import { formatBytes, formatCount, formatPlace } from "../../scene/format_numbers_and_names.js";
import { kindOfStorage } from "../../scene/saved_kind_colors.js";
import { piecesOfKinds } from "../bar_of_kinds.js";
import { wordsOf } from "../source/excerpt.js";

/** @typedef {Map<string, number>} Kinds bytes by kind */

const MAX_LINES = 60;

/**
 * @param {import("../../shared_view_state.js").Store} store
 * @param {number} fold index of the one whose bytes are counted
 * @returns {{element: HTMLElement, play: () => void}}
 */
export function makeSourceHeat(store, fold) {
  const { scene } = store;
  /** @type {Map<string, Map<number, Kinds>>} */
  const files = new Map();
  /** @type {Map<string, number[]>} counted storages by line */
  const membersOf = new Map();
  const { counted_storages: storages } = scene;
  // Reading columns instead of rows takes a tenth of the time for 100,000 storages.
  const columns = ["filename", "lineno", "nbytes"].map((name) => columnOf(storages, name));
  const [names, numbers, sizes] = columns;
  /** @type {Map<number, Map<number, {kinds: Kinds, members: number[]}>>} by file and line */
  const places = new Map();
  const add = (/** @type {string} */ kind, /** @type {Iterable<number>} */ members) => {
    for (const at of members) {
      if (!numbers[at]) continue;
      let lines = places.get(names[at]);
      if (!lines) places.set(names[at], (lines = new Map()));
      let line = lines.get(numbers[at]);
      if (!line) lines.set(numbers[at], (line = { kinds: new Map(), members: [] }));
      line.kinds.set(kind, (line.kinds.get(kind) ?? 0) + sizes[at]);
      line.members.push(at);
    }
  };
  for (const each of scene.ribbons) if (each.fold === fold) add(each.kind, each.members);
  // What its backward reads too is a ribbon of an earlier fold.
  for (const at of scene.folds[fold].shared) {
    add(kindOfStorage(scene, storages[at].storage_id), [at]);
  }
  for (const lines of places.values()) {
    for (const [lineno, { kinds, members }] of lines) {
      const { filename } = storages[members[0]];
      const own = files.get(filename) ?? new Map();
      files.set(filename, own.set(lineno, kinds));
      membersOf.set(`${filename}:${lineno}`, members);
    }
  }
  /** @type {Map<string, Map<number, import("../../scene/lines_of_findings.js").LineMark>>} */
  const marks = new Map();
  for (const mark of linesOfFindings(scene).values()) {
    const { filename, lineno } = mark;
    marks.set(filename, (marks.get(filename) ?? new Map()).set(lineno, mark));
    if (!files.has(filename)) files.set(filename, new Map());
  }
  const sumOf = (/** @type {Kinds} */ kinds) => [...kinds.values()].reduce((a, b) => a + b, 0);
  const total = (/** @type {Map<number, Kinds>} */ lines) =>
    [...lines.values()].reduce((sum, kinds) => sum + sumOf(kinds), 0);
  const sorted = [...files].sort((a, b) => total(b[1]) - total(a[1]));
  const most = Math.max(1, ...sorted.flatMap(([, lines]) => [...lines.values()].map(sumOf)));
  /**
   * @type {{row: HTMLElement, place: string, bytes: HTMLElement, all: number,
   *   members: number[], curve?: import("../../scene/curve_of_bytes_held.js").HeldCurve}[]}
   */
  const played = [];
  let left = MAX_LINES;
  const blocks = sorted.flatMap(([filename, lines]) => {
    const marked = marks.get(filename) ?? new Map();
    if (left <= 0 && !marked.size) return [];
    const source = store.sceneIndex.source.get(filename);
    const indentOf = (/** @type {number} */ line) => source?.get(line)?.search(/\S/) ?? -1;
    // The line behind the end of a block says nothing about it.
    const shown = new Set(
      [...lines.keys()].flatMap((line) =>
        indentOf(line + 1) < indentOf(line) ? [line - 1] : [line - 1, line + 1],
      ),
    );
    const { docstrings } = store.sceneIndex;
    for (const lineno of [...shown])
      if (!says(source?.get(lineno)) || docstrings.has(placeKey({ filename, lineno })))
        shown.delete(lineno);
    for (const line of [...lines.keys(), ...marked.keys()]) shown.add(line);
    const inOrder = [...shown]
      .sort((a, b) => a - b)
      .filter((line, at) => at < left || marked.has(line));
    left -= inOrder.length;
    const texts = withoutIndent(
      inOrder,
      (line) => source?.get(line) ?? marked.get(line)?.text ?? "",
    );
    const rows = inOrder.flatMap((line, at) => {
      const kinds = lines.get(line);
      const mark = marked.get(line);
      const gap = at > 0 && line > inOrder[at - 1] + 1;
      const bar = h("span", "agv-heat-bar", ...piecesOfKinds(scene, kinds ?? new Map(), most));
      const text = texts[at].trim();
      const code = h("code", { title: text }, ...wordsOf(text));
      code.style.paddingLeft = `${(texts[at].length - texts[at].trimStart().length) / 2 + (kinds || mark ? 2 : 0)}ch`;
      const bytes = h("span", "agv-heat-bytes", kinds ? formatBytes(sumOf(kinds)) : mark?.tag);
      const cells = [h("span", "agv-heat-number", String(line)), bar, code, bytes];
      const place = formatPlace(filename, line);
      const open = () => store.showLine(filename, line);
      const style = `agv-heat-row ${mark ? `agv-heat-${mark.tag}` : ""} ${mark?.hint ? "agv-hint" : ""} ${kinds || mark ? "agv-heat-whole" : ""}`;
      const row =
        kinds || mark
          ? button(`Open ${place}`, style, open, ...cells)
          : h("div", "agv-heat-row agv-muted", ...cells);
      const key = `${filename}:${line}`;
      const members = membersOf.get(key) ?? [];
      const all = members.reduce((sum, at) => sum + sizes[at], 0);
      played.push({ row, place: key, bytes, all, members });
      return gap ? [h("div", "agv-heat-gap"), row] : [row];
    });
    return [
      h("h4", { class: "agv-heat-file", text: formatPlace(filename, 0), title: filename }),
      ...rows,
    ];
  });
  const hidden = sorted.reduce((sum, [, lines]) => sum + lines.size, 0);
  const note = left <= 0 ? `the first of ${formatCount(hidden)} lines that keep bytes` : "";
  const { label: name } = scene.folds[fold];
  const saved = scene.summary.recomputed_nbytes ? "saved or recomputed" : "saved";
  const label = name ? `${saved} for ${name}` : `${saved} in the step`;
  const kept = h("span", "agv-muted", label);
  const element = h(
    "aside",
    { class: "agv-heat agv-side", attrs: { "aria-label": "Bytes by line", tabindex: 0 } },
    listHead("Lines", kept),
    h("div", "agv-heat-lines", ...blocks, note && h("p", "agv-muted", note)),
  );
  element.hidden = !played.length;
  /** Show the line at work, and the bytes that each line holds at the replayed time. */
  const play = () => {
    const { time, sceneIndex } = store;
    const node = time === null ? undefined : scene.nodes[workAt(sceneIndex, time)];
    kept.textContent = time === null ? label : "bytes held now";
    const now = node ? `${node.filename}:${node.lineno}` : "";
    for (const line of played) {
      const { row, place, bytes, all } = line;
      row.classList.toggle("agv-heat-now", place === now);
      if (!all) continue;
      if (time !== null) line.curve ??= heldCurve(line.members.map((at) => storages[at]));
      const held = time !== null && line.curve ? heldIn(line.curve, time) : all;
      bytes.textContent = formatBytes(held);
      const bar = /** @type {HTMLElement} */ (row.querySelector(".agv-heat-bar"));
      bar.style.opacity = String(0.15 + (0.85 * held) / all);
    }
  };
  return { element, play };
}

/**
 * @param {string | undefined} text of a line
 * @returns {boolean} whether it is there, and neither a comment nor a text alone
 */
function says(text = "") {
  return /\S/.test(text) && !/^\s*(#|[rbuf]*["'])/i.test(text);
}

/**
 * Return the texts of lines without the indent that successive ones have in common.
 *
 * @param {number[]} numbers ascending
 * @param {(line: number) => string} textOf
 * @returns {string[]}
 */
function withoutIndent(numbers, textOf) {
  /** @type {string[]} */
  const texts = [];
  let start = 0;
  numbers.forEach((line, at) => {
    if (numbers[at + 1] === line + 1) return;
    const part = numbers.slice(start, at + 1).map(textOf);
    const indents = part.filter((t) => t.trim()).map((t) => t.length - t.trimStart().length);
    const margin = indents.length ? Math.min(...indents) : 0;
    texts.push(...part.map((text) => text.slice(margin)));
    start = at + 1;
  });
  return texts;
}
