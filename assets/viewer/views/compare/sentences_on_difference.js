// @ts-check
/** Sentences on what differs between two recordings, two steps, or a forward and its recomputation. */

import { isBeyondSpread, isMeasured, meansPerStep } from "../../scene/graph_colorings.js";
import {
  capitalized,
  formatBytes,
  formatDuration,
  plural,
} from "../../scene/format_numbers_and_names.js";
import { hasSeveralSteps, modulesThatDiffer } from "./bytes_more_and_less.js";
import { differs } from "../checkpoint/diff_table_rows.js";

/** @typedef {import("../../types.js").Scene} Scene */
/** @typedef {import("../../types.js").SceneComparisonRow} Row */

/** Of the difference of a module. */
const NEARLY_ALL = 0.9;
/** Ops of each side that the sentence on a region names. */
const MAX_OPS = 3;

/**
 * Return sentences on two recordings: what the change did, and until where they ran the same ops.
 * Times are a result only if several steps were recorded.
 *
 * @param {Scene} scene of one of them, with the comparison
 * @returns {string[]}
 */
export function sentencesOfRuns({ compared_texts, comparison_rows }) {
  const rows = meansPerStep(comparison_rows);
  const total = rows.find(({ kind }) => kind === "total");
  const texts = [...compared_texts];
  const first = texts.find(({ aspect, what }) => aspect === "ops" && what === "first difference");
  // Ops of compiled regions have other names than those of eager code: they are not compared.
  const regions = texts.find(({ aspect, what }) => aspect === "compiled" && /^regions/.test(what));
  const [place] = [first?.after, first?.before].flatMap(
    (text) => / at (\S+)$/.exec(text ?? "")?.[1] ?? [],
  );
  const ops = place
    ? `Both ran the same ops until ${place}.`
    : first
      ? "The ops differ."
      : regions
        ? `Compiled ${regions.what}: ${regions.before} → ${regions.after}.`
        : "The same ops in both.";
  const [again, later] = total?.recomputed ?? [0, 0];
  const checkpoints =
    !again && later
      ? `backward recomputes ${perStep(later, rows)}`
      : again && !later
        ? `backward recomputes nothing instead of ${perStep(again, rows)}`
        : "";
  const result = [peaks(total), checkpoints, stepTimes(rows)].filter(Boolean).join("; ");
  const none = texts.every(({ kind }) => kind !== "finding") && "No finding in either.";
  return [`${capitalized(result)}.`, [ops, largest(rows), none].filter(Boolean).join(" ")];
}

/**
 * @param {Row[]} rows
 * @returns {string} which modules hold more or less, "" if none does
 */
function largest(rows) {
  const found = modulesThatDiffer(rows).filter(({ row }) => row.depth > 0);
  const most = Math.max(...found.map(size));
  // Of modules in each other, the innermost one that has nearly all of it.
  const module = found.filter((each) => size(each) >= NEARLY_ALL * most).at(-1);
  if (!module) return "";
  const [before, after] = module.pair;
  const amount = `${formatBytes(size(module))} ${after < before ? "less" : "more"}`;
  return `Largest difference: ${module.name}, ${amount}.`;
}

/** @param {{pair: number[]}} pair */
const size = ({ pair: [before, after] }) => Math.abs(after - before);

/**
 * @param {number} nbytes
 * @param {Row[]} rows
 * @returns {string} "85 MB per step"
 */
const perStep = (nbytes, rows) => formatBytes(nbytes) + (hasSeveralSteps(rows) ? " per step" : "");

/**
 * @param {Row[]} rows
 * @returns {string} "67 ms → 80 ms per step", "" if too few steps were recorded or if the times
 *   differ by no more than those of the steps of one recording
 */
function stepTimes(rows) {
  const phases = rows.filter(({ kind, label }) => kind === "phase" && label !== "recomputation");
  if (!isMeasured(phases) || !isBeyondSpread(phases)) return "";
  const sums = [0, 1].map((side) => phases.reduce((sum, { time_ns }) => sum + time_ns[side], 0));
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
  return `${start} ${capitalized(peaks(total))}.`;
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
