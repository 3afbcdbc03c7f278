// @ts-check
/**
 * The difference of two executions, of two recordings, two steps, or forward and recomputation: one
 * sentence, both folds on one scale of bytes, and source lines in two columns with the values that differ.
 */

import { startDrawing } from "../../canvas/chart_parts.js";
import { hostTheme } from "../../canvas/theme.js";
import { h, chartCanvas } from "../../dom.js";
import { isMeasured } from "../../scene/graph_colorings.js";
import {
  formatBytes,
  formatCount,
  formatDuration,
  plural,
} from "../../scene/format_numbers_and_names.js";
import { heldPoints, paintHeld } from "./overlaid_curves_of_bytes_held.js";
import { differs } from "../checkpoint/diff_table_rows.js";
import { largestFold } from "../../scene/ribbon_bytes_and_colors.js";
import { paintFold } from "../saved_memory_fold/paint_fold.js";

/** Ops of each side that the sentence on a region names. */
const MAX_OPS = 3;

/** @typedef {import("../../types.js").Scene} Scene */
/** @typedef {import("../../types.js").SceneComparisonRow} Row */
/** @typedef {{title: string, scene: Scene, fold: number, step: number}} Side one execution */

/**
 * @param {string} title
 * @param {Scene} scene
 * @param {number} [step] index of the only step that counts, -1 for all
 * @returns {Side} with the fold that holds most
 */
export function sideOf(title, scene, step = -1) {
  if (step < 0) return { title, scene, fold: largestFold(scene), step };
  let fold = -1;
  for (const each of scene.folds) {
    const isLarger = fold < 0 || each.peak_nbytes > scene.folds[fold].peak_nbytes;
    if (each.drawn && each.step === step && isLarger) fold = each.index;
  }
  return { title, scene, fold, step };
}

/**
 * Return both folds side by side; the widths of their ribbons have the same scale.
 *
 * @param {() => import("../../canvas/theme.js").Palette} palette
 * @returns {{element: HTMLElement, show: (sides: Side[]) => void}}
 */
export function makeFolds(palette) {
  const panes = [0, 1].map(() => {
    const canvas = chartCanvas();
    return { canvas, title: h("div", "agv-muted") };
  });
  const cells = panes.map(({ canvas, title }) =>
    h("div", "agv-two-fold", title, h("div", "agv-two-fold-canvas", canvas)),
  );
  const held = chartCanvas("What saved tensors of both hold over time");
  const heldTitle = h("div", "agv-muted");
  cells.push(h("div", "agv-two-fold", heldTitle, h("div", "agv-two-fold-canvas", held)));
  const element = h("div", "agv-two-folds", ...cells);
  element.hidden = true;
  /** @type {Side[]} */
  let shown = [];
  const draw = () => {
    paintHeld(held, palette(), shown.map(heldPoints));
    const totals = shown.map(({ scene, fold }) => scene.folds[fold]?.nbytes ?? 0);
    const most = Math.max(1, ...totals);
    shown.forEach(({ scene, fold: at }, place) => {
      const { canvas } = panes[place];
      const drawing = startDrawing(canvas, palette());
      const fold = scene.folds[at];
      if (!drawing || !fold) return;
      const wide = (/** @type {number} */ own) => Math.max(60, (drawing.width * own) / most);
      const width = wide(totals[place]);
      const ribbons = scene.ribbons.filter((each) => each.fold === at);
      const nothing = { time: null, work: -1, hovered: null, lit: new Set(), planned: new Set() };
      const picture = { scene, fold, ribbons, theme: hostTheme(), ...nothing };
      paintFold({ ...drawing, width }, picture);
    });
  };
  new ResizeObserver(draw).observe(element);
  const show = (/** @type {Side[]} */ sides) => {
    shown = sides;
    element.hidden = !sides.some(({ fold }) => fold >= 0);
    const [first, second] = sides.map(({ title }) => title);
    const lines = second ? ` · dashed ${first}, solid ${second}` : "";
    heldTitle.replaceChildren(h("b", "", "Held"), lines);
    sides.forEach(({ title, scene, fold: at, step }, place) => {
      const fold = scene.folds[at];
      const own = step < 0 && scene.folds.length === 1 ? "" : " for its largest backward";
      const held = fold && `${formatBytes(fold.peak_nbytes)} at the peak${own}`;
      const peak = held ?? "no saved tensor";
      panes[place].title.replaceChildren(h("b", "", title), ` · ${peak}`);
      panes[place].canvas.setAttribute("aria-label", `${title}: ${fold?.sentence ?? peak}`);
    });
    draw();
  };
  return { element, show };
}

/**
 * Return sentences on two recordings: what the change did, and until where they ran the same ops.
 * Times are a result only if several steps were recorded.
 *
 * @param {Scene} scene of one of them, with the comparison
 * @returns {string[]}
 */
export function sentencesOfRuns({ compared_texts, comparison_rows }) {
  const rows = [...comparison_rows];
  const total = rows.find(({ kind }) => kind === "total");
  const first = [...compared_texts].find(
    ({ aspect, what }) => aspect === "ops" && what === "first difference",
  );
  const [place] = [first?.after, first?.before].flatMap(
    (text) => / at (\S+)$/.exec(text ?? "")?.[1] ?? [],
  );
  const ops = place
    ? `Both ran the same ops until ${place}.`
    : first
      ? "The ops differ."
      : "The same ops in both.";
  const [again, later] = total?.recomputed ?? [0, 0];
  const checkpoints =
    !again && later
      ? `backward recomputes ${formatBytes(later)}`
      : again && !later
        ? `backward recomputes nothing instead of ${formatBytes(again)}`
        : "";
  const result = [peaks(total), checkpoints, stepTimes(rows)].filter(Boolean).join("; ");
  return [`${capital(result)}.`, ops];
}

/** @param {string} text */
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/**
 * @param {Row[]} rows
 * @returns {string} "67 ms → 80 ms per step", "" if too few steps were recorded
 */
function stepTimes(rows) {
  const phases = rows.filter(({ kind, label }) => kind === "phase" && label !== "recomputation");
  if (!isMeasured(phases)) return "";
  const sums = [0, 1].map((side) =>
    phases.reduce((sum, { time_ns, steps }) => sum + time_ns[side] / steps[side], 0),
  );
  return `${sums.map((ns) => formatDuration(ns)).join(" → ")} per step`;
}

/**
 * @param {Row[]} rows of a comparison of two steps
 * @returns {string}
 */
export function sentenceOfSteps(rows) {
  const total = rows.find(({ kind }) => kind === "total");
  const line = rows.find(
    ({ kind, merged, status }) => kind === "line" && merged && status !== "same",
  );
  const start = line
    ? `${line.lines.filter(Boolean).length ? `Line ${line.lines.find(Boolean)} differs: ` : ""}${line.label}.`
    : "Each line has the same nodes and bytes in both steps.";
  return `${start} ${capital(peaks(total))}.`;
}

/**
 * @param {import("../../types.js").SceneDiffRow[]} rows of a checkpoint region
 * @returns {string}
 */
export function sentenceOfRegion(rows) {
  const at = rows.findIndex(differs);
  if (at < 0) {
    const rerun = rows.filter(({ status }) => status === "same").length;
    const rest = rows.length - rerun;
    const others = rest ? `; ${plural(rest, "op")} more did not have to run again` : "";
    return `Forward and recomputation ran the same ${plural(rerun, "op")}${others}.`;
  }
  const sides = (/** @type {import("../../types.js").SceneDiffRow} */ row) =>
    Number(Boolean(row.forward_op)) + 2 * Number(Boolean(row.recompute_op));
  const first = sides(rows[at]);
  const end = rows.findIndex(
    (row, index) => index > at && (!differs(row) || (first < 3 && sides(row) !== first)),
  );
  const part = rows.slice(at, end < 0 ? undefined : end);
  const ran = (/** @type {"forward" | "recompute"} */ run) => {
    const own = part.filter((row) => row[`${run}_op`]);
    if (!own.length) return "no op";
    const lines = new Set(own.map((row) => row[`${run}_line`]));
    const place = (/** @type {number} */ line) => (line ? ` at line ${line}` : "");
    const names = own.slice(0, MAX_OPS).map((row) => {
      const name = row[`${run}_op`];
      return lines.size > 1 ? `${name}${place(row[`${run}_line`])}` : name;
    });
    const more = own.length > MAX_OPS ? " …" : "";
    return `${names.join(", ")}${more}${lines.size > 1 ? "" : place(own[0][`${run}_line`])}`;
  };
  const [forward, again] = [ran("forward"), ran("recompute")];
  if (first < 3) {
    const [run, what] = first === 1 ? ["forward", forward] : ["recomputation", again];
    const begin = at ? `The same ${plural(at, "op")}, then only` : "Only";
    return `${begin} the ${run} ran ${what}.`;
  }
  if (forward === again) return `The same ${plural(at, "op")}, then ${forward} with other results.`;
  const start = at ? `The same ${plural(at, "op")}, then forward` : "Forward";
  return `${start} ran ${forward}, recomputation ${again}.`;
}

/**
 * @param {Row | undefined} total
 * @returns {string}
 */
function peaks(total) {
  const [before, after] = (total?.at_peak ?? []).map((value) => formatBytes(value));
  if (before === undefined) return "";
  return before === after
    ? `${after} held at the peak in both`
    : `${before} → ${after} held at the peak`;
}

/**
 * Return the lines that differ in two columns, each with its values there.
 *
 * @param {Row[]} rows
 * @returns {HTMLElement | null} null if none differs
 */
export function sourceColumns(rows) {
  /** @type {Map<string, {label: string, lines: number[], sums: Map<string, number[]>}>} */
  const lines = new Map();
  for (const row of rows) {
    if (row.kind !== "line" || !row.merged) continue;
    const numbers = row.lines.length > 1 ? row.lines : [row.lines[0], row.lines[0]];
    const key = `${numbers} ${row.label}`;
    const line = lines.get(key) ?? { label: row.label, lines: [...numbers], sums: new Map() };
    lines.set(key, line);
    for (const [name, pair] of /** @type {[string, number[]][]} */ ([
      ["saved", row.saved],
      ["recomputed", row.recomputed],
      ["nodes", row.nodes],
    ])) {
      const sum = line.sums.get(name) ?? [0, 0];
      line.sums.set(name, [sum[0] + pair[0], sum[1] + pair[1]]);
    }
  }
  const isNew = (/** @type {{lines: number[]}} */ { lines: [first, second] }) => !first !== !second;
  const bytes = (/** @type {{sums: Map<string, number[]>}} */ { sums }) =>
    [...sums].reduce(
      (sum, [name, [before, after]]) => sum + (name === "nodes" ? 0 : Math.abs(after - before)),
      0,
    );
  // What only one of them has is the cause, if there is one.
  const differing = [...lines.values()]
    .filter(
      (line) => isNew(line) || [...line.sums.values()].some(([before, after]) => before !== after),
    )
    .sort((a, b) => Number(isNew(b)) - Number(isNew(a)) || bytes(b) - bytes(a));
  const cell = (
    /** @type {typeof differing[number]} */ { label, lines: numbers, sums },
    /** @type {0 | 1} */ side,
  ) => {
    const values = [...sums]
      .filter(([, pair]) => pair[0] !== pair[1] && pair[side])
      .map(([name, pair]) =>
        name === "nodes"
          ? `${formatCount(pair[side])} nodes`
          : `${name} ${formatBytes(pair[side])}`,
      );
    const isThere = numbers[side] > 0;
    const isOnly = isThere && !numbers[1 - side];
    if (isOnly) values.unshift(side ? "new" : "removed");
    return h(
      "div",
      `agv-two-line ${isThere ? (isOnly ? "agv-two-only" : "") : "agv-absent"}`,
      h("span", "agv-muted", isThere ? String(numbers[side]) : ""),
      h("code", { text: isThere ? label : "", title: label }),
      h("span", "agv-two-value", isThere ? values.join(" · ") || "nothing" : ""),
    );
  };
  if (!differing.length) return null;
  return h(
    "div",
    { class: "agv-two-lines", attrs: { tabindex: 0 } },
    ...differing.flatMap((line) => [cell(line, 0), cell(line, 1)]),
  );
}
