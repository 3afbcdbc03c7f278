// @ts-check
/** Source lines with the bytes that each holds at the peak, by kind. */

import { button, h, listHead } from "../../dom.js";
import { workAt } from "../../scene/progress_at_replayed_time.js";
import { columnOf } from "../../payload/lazy_rows.js";
import { heldCurve, heldIn } from "../../scene/curve_of_bytes_held.js";
import { placeKey } from "../../scene/source_line_costs.js";
import { linesOfFindings } from "../../scene/lines_of_findings.js";
import { formatBytes, formatCount, formatPlace } from "../../scene/format_numbers_and_names.js";
import { kindOfStorage } from "../../scene/saved_kind_colors.js";
import { bytesAtPeak, kindsHeld } from "../../scene/bytes_of_ribbons_and_folds.js";
import { piecesOfKinds } from "../bar_of_kinds.js";
import { wordsOf } from "../source/excerpt.js";

/** @typedef {import("../../scene/predict_memory.js").Held} Held */
/** @typedef {Map<string, number>} Kinds bytes by kind */

const MAX_LINES = 60;

/**
 * @param {import("../../shared_view_state.js").Store} store
 * @param {number} fold index of the one whose bytes are counted
 * @returns {{element: HTMLElement, play: () => void, predict: (held: Held | undefined) => void}}
 */
export function makeSourceHeat(store, fold) {
  const { scene } = store;
  /** @type {Map<string, Map<number, Kinds>>} */
  const files = new Map();
  /** @type {Map<string, Members>} by line */
  const membersOf = new Map();
  const { counted_storages: storages } = scene;
  // Reading columns instead of rows takes a tenth of the time for 100,000 storages.
  const columns = ["filename", "lineno"].map((name) => columnOf(storages, name));
  const [names, numbers] = columns;
  /** @typedef {Map<string, number[]>} Members storages by kind */
  /** @type {Map<number, Map<number, Members>>} by file and line */
  const places = new Map();
  const add = (/** @type {string} */ kind, /** @type {Iterable<number>} */ members) => {
    for (const at of members) {
      if (!numbers[at]) continue;
      let lines = places.get(names[at]);
      if (!lines) places.set(names[at], (lines = new Map()));
      let line = lines.get(numbers[at]);
      if (!line) lines.set(numbers[at], (line = new Map()));
      const own = line.get(kind);
      if (own) own.push(at);
      else line.set(kind, [at]);
    }
  };
  for (const each of scene.ribbons) if (each.fold === fold) add(each.kind, each.members);
  // What its backward reads too is a ribbon of an earlier fold.
  for (const at of scene.folds[fold].shared) {
    add(kindOfStorage(scene, storages[at].storage_id), [at]);
  }
  const atPeak = (/** @type {Members} */ line, /** @type {Held | undefined} */ held) => {
    const ribbons = [...line].map(([kind, members]) => ({ kind, members }));
    return kindsHeld(ribbons, bytesAtPeak(scene, scene.folds[fold], held));
  };
  for (const lines of places.values()) {
    for (const [lineno, line] of lines) {
      const { filename } = storages[[...line.values()][0][0]];
      const own = files.get(filename) ?? new Map();
      files.set(filename, own.set(lineno, atPeak(line, undefined)));
      membersOf.set(`${filename}:${lineno}`, line);
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
   * @type {{row: HTMLElement, place: string, bytes: HTMLElement, bar: HTMLElement, all: number,
   *   line?: Members, curve?: import("../../scene/curve_of_bytes_held.js").HeldCurve}[]}
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
      played.push({
        row,
        place: key,
        bytes,
        bar,
        all: sumOf(kinds ?? new Map()),
        line: membersOf.get(key),
      });
      return gap ? [h("div", "agv-heat-gap"), row] : [row];
    });
    return [
      h("h4", { class: "agv-heat-file", text: formatPlace(filename, 0), title: filename }),
      ...rows,
    ];
  });
  const hidden = sorted.reduce((sum, [, lines]) => sum + lines.size, 0);
  const note = left <= 0 ? `the first of ${formatCount(hidden)} lines that keep bytes` : "";
  let label = "held at the peak";
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
    for (const each of played) {
      const { row, place, bytes, bar, all, line } = each;
      row.classList.toggle("agv-heat-now", place === now);
      if (!line) continue;
      const members = () => [...line.values()].flat().map((at) => storages[at]);
      if (time !== null) each.curve ??= heldCurve(members());
      const held = time !== null && each.curve ? heldIn(each.curve, time) : all;
      bytes.textContent = formatBytes(held);
      bar.style.opacity = String(0.15 + 0.85 * Math.min(1, held / (all || 1)));
    }
  };
  /** Show what a plan would hold at the peak, or what is held as recorded. */
  const predict = (/** @type {Held | undefined} */ held) => {
    label = held ? "predicted at the peak" : "held at the peak";
    for (const each of played) {
      if (!each.line) continue;
      const kinds = atPeak(each.line, held);
      each.all = sumOf(kinds);
      each.bar.replaceChildren(...piecesOfKinds(scene, kinds, most));
    }
    play();
  };
  return { element, play, predict };
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
