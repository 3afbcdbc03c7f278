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
  hasSeveralSteps,
  isHeldKnown,
  mergedName,
  modulesTable,
  signed,
} from "./bytes_more_and_less.js";
import { linesThatDiffer, sourceColumns } from "./source_lines_that_differ.js";

/** @typedef {import("../../types.js").SceneComparisonRow} Row */

const MAX_ROWS = 500;

const HEAD = ["", "module or line", "nodes", "saved", "recomputed", "time in ops", "gradient norm"];

/** @type {Record<string, [mark: string, color: string, meaning: string]>} */
export const STATUS = {
  same: ["", "", "same in both"],
  changed: ["≠", "agv-strong", "differs"],
  added: ["+", "agv-recompute", "only after"],
  removed: ["−", "agv-phase-backward", "only before"],
};

/**
 * Return the panel with the rows of modules and lines.
 *
 * @param {Iterable<Row>} table rows with those of merged modules and of separate ones
 * @param {(row: Row) => void} show called for a row that was clicked
 * @returns {HTMLElement}
 */
export function rowsPanel(table, show) {
  const rows = [...table];
  const body = h("tbody");
  const count = h("span", "agv-muted");
  let counted = "";
  const isSlower = timeBound(rows);
  const normed = rows.some((row) => row.norm_before !== null || row.norm_after !== null);
  const head = normed ? HEAD : HEAD.slice(0, -1);
  const means = hasSeveralSteps(rows) && "per step";
  let merged = true;
  const differs = rows.some((row) => isPlace(row) && row.status !== "same");
  let changes = differs; // without differences, the durations of all lines are of interest
  const fill = () => {
    const all = rows.filter((row) => isPlace(row) && Boolean(row.merged) === merged);
    const found = changes ? all.filter((_, at) => containsChange(all, at)) : all;
    const shown = found.slice(0, MAX_ROWS);
    const none = changes ? "No nodes or bytes differ." : "No module or line has nodes.";
    const attrs = { colspan: HEAD.length };
    const note = h("td", { class: "agv-stacked-name agv-muted", attrs, text: none });
    body.replaceChildren(
      ...(shown.length ? [] : [h("tr", {}, note)]),
      ...shown.map((row) =>
        tableRow(row, mergedName(rows, row), isSlower, normed, () => show(row)),
      ),
    );
    const lines = new Set(all.flatMap(({ kind, label }) => (kind === "line" ? [label] : [])));
    counted = dotted([
      `${formatCount(linesThatDiffer(rows).length)} of ${plural(lines.size, "line")} differ`,
      cutText(Math.min(MAX_ROWS, found.length), found.length, "first"),
      means,
    ]);
    count.textContent = counted;
  };
  const choose = (/** @type {string} */ name) => {
    if (name === "changes" || name === "all") changes = name === "changes";
    else merged = name === "merged";
    fill();
  };
  fill();
  const tableElement = tableOf(head, 2, head.length, body, {
    name: 1,
    columns: "0.7fr 1.3fr 1fr 1.6fr 1fr".slice(0, normed ? undefined : -4),
  });
  const columns = sourceColumns(rows);
  const source =
    columns &&
    h(
      "div",
      { class: "agv-panel-body", attrs: { tabindex: 0 } },
      columns,
      modulesTable(rows, show),
    );
  const bytes = isHeldKnown(rows) ? "held at the peak" : "saved";
  const filters = [
    choice(["changes", "all"], differs ? "changes" : "all", choose),
    choice(["merged", "each block"], "merged", choose),
  ];
  const turn = (/** @type {string} */ name) => {
    const isTable = name === "modules and lines";
    for (const each of [...filters, tableElement]) each.hidden = !isTable;
    if (source) source.hidden = isTable;
    const own = (columns?.childElementCount ?? 0) / 3;
    const order = columns?.querySelector(".agv-two-only") ? ", below those in only one" : "";
    count.textContent = isTable
      ? counted
      : dotted([
          `${plural(own, "line")}, largest first${order}`,
          means,
          `on the right, bytes ${bytes}: less ← → more`,
        ]);
  };
  const title = h("h3", "", source ? "What differs" : "Modules and lines");
  const first = source ? "lines" : "modules and lines";
  const turns = source ? [choice(["lines", "modules and lines"], first, turn)] : [];
  const element = panel(
    "table",
    [title, count, h("span", "agv-end", ...turns), ...filters],
    ...(source ? [source] : []),
    tableElement,
  );
  turn(first);
  return element;
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

/**
 * @param {Row} row
 * @param {string} text
 * @param {(times: number[]) => boolean} isSlower whether two times differ by more than noise
 * @param {boolean} normed whether there is a column of norms
 * @param {() => void} show
 * @returns {HTMLElement}
 */
function tableRow(row, text, isSlower, normed, show) {
  const [mark, color, meaning] = STATUS[row.status];
  const isLine = row.kind === "line";
  const numbers = [...new Set(row.lines.filter(Boolean))].join(" → ");
  const label = h(isLine ? "code" : "b", { text, title: row.module });
  const name = h("td", "agv-compare-name agv-stacked-name", label);
  if (isLine) name.prepend(h("span", "agv-muted", numbers));
  if (row.other_nodes) name.append(h("div", "agv-muted", row.other_nodes));
  name.style.paddingLeft = `${4 + 14 * Math.max(0, row.depth - 1)}px`;
  const norms = [row.norm_before, row.norm_after];
  return h(
    "tr",
    { onclick: show },
    h("td", { class: `agv-stacked-hidden ${color}`, title: meaning, text: mark }),
    name,
    pairCell(row.nodes, formatCount),
    pairCell(row.saved, formatBytes),
    pairCell(row.recomputed, formatBytes),
    pairCell(row.time_ns, formatDuration, isSlower(row.time_ns)),
    normed && pairCell(norms, (norm) => (norm === null ? "none" : formatNorm(norm))),
  );
}

/**
 * @template {number | null} Value
 * @param {Value[]} pair
 * @param {(value: Value) => string} format
 * @param {boolean} [emphasized]
 * @returns {HTMLElement}
 */
function pairCell(pair, format, emphasized = true) {
  const [before, after] = pair.map((value) => (value === 0 ? "0" : format(value)));
  if (!pair[0] && !pair[1]) return h("td");
  if (before === after) return h("td", "agv-right agv-muted", after);
  const later = emphasized ? h("b", "", after) : after;
  return h("td", "agv-right", h("span", "agv-muted", `${before} → `), later);
}
