// @ts-check
/** Tables of a comparison: the totals, and the rows of modules and lines; of recordings or of steps. */

import { choice, h } from "../../dom.js";
import { MANY_STEPS, isBeyondSpread, isMeasured, timeBound } from "../../scene/graph_colorings.js";
import {
  cutText,
  dotted,
  formatBytes,
  formatCount,
  formatDuration,
  formatNorm,
  plural,
} from "../../scene/format_numbers_and_names.js";
import { PHASE_MEANINGS } from "../../scene/phase_times.js";
import { panel, table as tableOf } from "../panels_and_tables.js";
import {
  differenceBar,
  hasSeveralSteps,
  heldPair,
  isHeldKnown,
  mergedName,
  modulesThatDiffer,
  signed,
} from "./bytes_more_and_less.js";
import { linesThatDiffer } from "./source_lines_that_differ.js";

/** @typedef {import("../../types.js").SceneComparisonRow} Row */
/** @typedef {import("./source_lines_that_differ.js").Place} Place */

const MAX_ROWS = 500;

/** @type {Record<string, [mark: string, color: string, meaning: string]>} */
export const STATUS = {
  same: ["", "", "same in both"],
  changed: ["≠", "agv-strong", "differs"],
  added: ["+", "agv-recompute", "only after"],
  removed: ["−", "agv-phase-backward", "only before"],
};

/**
 * Return the panel of the lines and modules that differ, and of all of them.
 *
 * @param {Iterable<Row>} table rows with those of merged modules and of separate ones
 * @param {(row: Row) => void} show called for a row that was clicked
 * @param {string[]} titles of both
 * @param {...HTMLElement} below
 * @returns {HTMLElement}
 */
export function rowsPanel(table, show, titles, ...below) {
  const rows = [...table];
  const holder = h("div", { class: "agv-panel-body", attrs: { tabindex: 0 } });
  const count = h("span", "agv-muted");
  const means = hasSeveralSteps(rows) && "per step";
  const held = heldPair(rows);
  const isKnown = isHeldKnown(rows);
  const lines = linesThatDiffer(rows);
  const modules = modulesThatDiffer(rows);
  const most = Math.max(...[...lines, ...modules].map(({ pair: [a, b] }) => Math.abs(b - a)), 0);
  const what = isKnown ? "held at peak" : "saved";
  const isSlower = timeBound(rows);
  /** @type {[string, (row: Row) => (number | null)[], (value: any) => string][]} */
  const measures = [
    ["nodes", ({ nodes }) => nodes, formatCount],
    ["saved", ({ saved }) => (most && !isKnown ? [] : saved), formatBytes],
    ["recomputed", ({ recomputed }) => recomputed, formatBytes],
    ["time in ops", ({ time_ns }) => time_ns, formatDuration],
    ["gradient norm", (row) => [row.norm_before, row.norm_after], formatNorm],
  ];
  let merged = true;
  const differ = lines.length > 0 || rows.some((row) => isPlace(row) && row.status !== "same");
  let changes = differ; // without differences, the durations of all lines are of interest
  let isTree = !lines.length;

  const tableRow = (
    /** @type {Place} */ { row, name, pair },
    /** @type {typeof measures} */ own,
  ) => {
    const [mark, color, meaning] = STATUS[row.status];
    const isLine = row.kind === "line";
    const numbers = [...new Set(row.lines.filter(Boolean))].join(" → ");
    const text = h(isLine ? "code" : "b", { text: name, title: row.module });
    const label = h("td", "agv-compare-name agv-stacked-name", text);
    if (isLine) label.prepend(h("span", "agv-muted", numbers));
    if (row.other_nodes) label.append(h("div", "agv-muted", row.other_nodes));
    label.style.paddingLeft = `${4 + 14 * Math.max(0, row.depth - 1)}px`;
    return h(
      "tr",
      { onclick: () => show(row) },
      h("td", { class: `agv-stacked-hidden ${color}`, title: meaning, text: mark }),
      label,
      ...(most
        ? [...pair.map(bytesCell), h("td", {}, differenceBar(pair[1] - pair[0], most))]
        : []),
      ...own.map(([title, pairOf, format]) => {
        const isTime = title === "time in ops";
        return pairCell(pairOf(row), format, !isTime || isSlower(row.time_ns));
      }),
    );
  };
  const head = (/** @type {string} */ text) =>
    h("tr", {}, h("td", { class: "agv-stacked-name agv-muted", attrs: { colspan: 10 }, text }));
  const placesOfTree = () => {
    const all = withoutSlight(rows.filter((row) => isPlace(row) && Boolean(row.merged) === merged));
    const found = changes ? all.filter((_, at) => containsChange(all, at)) : all;
    const shown = found.slice(0, MAX_ROWS);
    const texts = new Set(all.flatMap(({ kind, label }) => (kind === "line" ? [label] : [])));
    count.textContent = dotted([
      `${formatCount(lines.length)} of ${plural(texts.size, "line")} differ`,
      cutText(shown.length, found.length, "first"),
      means,
    ]);
    return shown.map((row) => ({ row, name: mergedName(rows, row), pair: held(row) }));
  };
  const linesInOrder = () => {
    const order = lines[0].row.status === "changed" ? "" : ", below those in only one";
    count.textContent = dotted([`${plural(lines.length, "line")}, largest first${order}`, means]);
    return lines;
  };
  const fill = () => {
    for (const each of filters) each.hidden = !isTree;
    const places = isTree ? placesOfTree() : linesInOrder();
    const around = isTree ? [] : modules;
    const shown = [...places, ...around];
    const own = measures.filter(([, pairOf]) => shown.some(({ row }) => pairOf(row).some(Boolean)));
    const none = changes ? "No nodes or bytes differ." : "No module or line has nodes.";
    const bytes = most ? [`${what}: ${titles[0]}`, titles[1], "difference"] : [];
    const names = ["", "line or module", ...bytes, ...own.map(([title]) => title)];
    const body = h(
      "tbody",
      "",
      ...places.map((each) => tableRow(each, own)),
      around.length > 0 && head("modules"),
      ...around.map((each) => tableRow(each, own)),
      !places.length && head(none),
    );
    const columns = "1fr 1fr 1fr 1fr";
    const { children } = tableOf(names, 2, names.length, body, { name: 1, columns });
    holder.replaceChildren(...children, ...below);
  };
  const choose = (/** @type {string} */ name) => {
    if (name === "changes" || name === "all") changes = name === "changes";
    else if (name === "merged" || name === "each block") merged = name === "merged";
    else isTree = name !== "lines";
    fill();
  };
  const filters = [
    choice(["changes", "all"], differ ? "changes" : "all", choose),
    choice(["merged", "each block"], "merged", choose),
  ];
  fill();
  const turns = lines.length ? [choice(["lines", "modules and lines"], "lines", choose)] : [];
  return panel(
    "table",
    [
      h("h3", "", lines.length ? "What differs" : "Modules and lines"),
      count,
      h("span", "agv-end", ...turns),
      ...filters,
    ],
    holder,
  );
}

/**
 * Return whether a row or, for a module, one of the rows below it differs.
 *
 * @param {Row[]} rows
 * @param {number} at
 * @returns {boolean}
 */
function containsChange(rows, at) {
  const { depth, kind } = rows[at];
  let end = at + 1;
  if (kind === "module") while (end < rows.length && rows[end].depth > depth) end++;
  return rows.slice(at, end).some((row) => row.status !== "same");
}

/**
 * Leave out lines without nodes and bytes that have less than a hundredth of the time of their
 * module, such as the line of backward, which accumulates the gradients of each module.
 *
 * @param {Row[]} rows
 * @returns {Row[]}
 */
function withoutSlight(rows) {
  const parents = new Map(rows.map((row) => [row.kind + row.module, row.time_ns]));
  return rows.filter(({ kind, module, nodes, saved, recomputed, time_ns }) => {
    const all = parents.get(`module${module}`);
    const has = [nodes, saved, recomputed].flat().some(Boolean);
    return kind !== "line" || !all || has || time_ns.some((ns, at) => ns * 100 > all[at]);
  });
}

/** @param {Row} row */
const isPlace = ({ kind }) => kind === "module" || kind === "line";

/** @param {Iterable<Row>} rows */
export const phasesOf = (rows) => [...rows].filter(({ kind }) => kind === "phase");

/** @type {Record<string, string>} */
const MEANINGS = {
  ...Object.fromEntries(PHASE_MEANINGS),
  recomputation: "of checkpointed regions, in backward",
};

/** @typedef {[name: string, pair: number[], format: (value: number) => string]} Figure */

/**
 * Return a table of what two executions hold and take. Times of few steps have no change.
 *
 * @param {Row} total
 * @param {Row[]} phases
 * @param {string[]} titles of both
 * @param {string} [warm] sentence on a warm-up step
 * @param {Figure[]} [more]
 * @returns {HTMLElement}
 */
export function totals(total, phases, titles, warm = "", more = []) {
  const each = hasSeveralSteps(phases) ? " per step" : "";
  /** @type {Figure[]} */
  const figures = [
    ["held at peak", total.at_peak, formatBytes],
    [`saved${each}`, total.saved, formatBytes],
    [`recomputed${each}`, total.recomputed, formatBytes],
    ["nodes drawn", total.nodes, formatCount],
    ...more,
  ];
  const measured = isMeasured(phases);
  const row = (
    /** @type {string} */ name,
    /** @type {number[]} */ [before, after],
    /** @type {(value: number) => string} */ format,
    isResult = true,
    spread = "",
  ) => {
    const percent = before ? Math.round((100 * (after - before)) / before) : 0;
    const signs = percent ? `${percent > 0 ? "+" : "−"}${Math.abs(percent)} %` : "";
    const change = before === after ? "same" : signs || signed(after - before, format);
    const cell = (/** @type {number} */ value) => h("td", "agv-right", value ? format(value) : "0");
    const title = MEANINGS[name] ?? "";
    const label = name === "recomputation" ? "of it recomputation" : name;
    return h(
      "tr",
      spread ? "agv-phase-row" : "",
      h("th", { text: label, title }),
      cell(before),
      cell(after),
      h("td", { class: "agv-right", text: isResult ? change : "", title: spread }),
    );
  };
  const [first, second] = phases[0]?.steps ?? [1, 1];
  const counted = first === second ? plural(first, "step") : `${first} and ${second} steps`;
  const means = first + second > 2 ? `means of ${counted}` : "of one step each";
  const note = measured
    ? "a change beyond the spread of the steps has a percentage"
    : `with ${MANY_STEPS + 1} steps or more in each recording, they can be compared`;
  return h(
    "table",
    "agv-table agv-totals",
    phases.length > 0 && h("caption", "agv-muted", dotted([`times are ${means}; ${note}`, warm])),
    h(
      "thead",
      {},
      h("tr", {}, h("td"), ...[...titles, "change"].map((text) => h("th", "agv-right", text))),
    ),
    h(
      "tbody",
      {},
      ...figures
        .filter(([, pair]) => pair[0] || pair[1])
        .map(([name, pair, format]) => row(name, pair, format)),
      ...phases.map((phase) =>
        row(
          phase.label,
          phase.time_ns,
          formatDuration,
          measured && isBeyondSpread([phase]),
          phase.least_ns
            .map((ns, at) => `${formatDuration(ns)} – ${formatDuration(phase.most_ns[at])}`)
            .join(" → "),
        ),
      ),
    ),
  );
}

/** @param {number} nbytes */
const bytesCell = (nbytes) => h("td", "agv-right", nbytes ? formatBytes(nbytes) : "0");

/**
 * @template {number | null} Value
 * @param {Value[]} pair
 * @param {(value: Value) => string} format
 * @param {boolean} [emphasized]
 * @returns {HTMLElement}
 */
function pairCell(pair, format, emphasized = true) {
  const [before, after] = pair.map((each) => (each ? format(each) : each === 0 ? "0" : "none"));
  if (!pair[0] && !pair[1]) return h("td");
  if (before === after) return h("td", "agv-right agv-muted", after);
  const later = emphasized ? h("b", "", after) : after;
  return h("td", "agv-right", h("span", "agv-muted", `${before} → `), later);
}
