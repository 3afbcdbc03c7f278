// @ts-check
/** Rows of numbers: what lines cost, and what a number consists of. */

import { button, h, listen } from "../../dom.js";
import { icon } from "../../canvas/draw_icon.js";
import { lineLink } from "../panels_and_tables.js";
import { COLUMNS, callees, ownCost, timeOf } from "../../scene/source_line_costs.js";
import {
  formatBytes,
  formatCount,
  formatDuration,
  placeOf,
} from "../../scene/format_numbers_and_names.js";

/** @typedef {import("../../shared_view_state.js").Store} Store */
/** @typedef {import("../../scene/source_line_costs.js").Cost} Cost */
/** @typedef {import("../../scene/source_line_costs.js").CallCosts} CallCosts */
/** @typedef {import("../../scene/source_line_costs.js").Part} Part */

const MAX_PARTS = 100;
const HUES = ["saved", "saved", "recompute", "text2", "backward"];

/**
 * @param {number} value
 * @param {number} at
 */
const format = (value, at) => (at < 3 ? formatBytes : at < 7 ? formatDuration : formatCount)(value);

/**
 * @param {Cost} cost
 * @param {Cost} [own] without calls, if it may be less
 * @param {[bytes: number, time: number]} [largest] of all lines, for bars beside the numbers
 * @returns {HTMLElement[]} one cell for each column
 */
export function costCells(cost, own = cost, largest = [Infinity, Infinity]) {
  const [saved, , again] = cost;
  return cost.flatMap((value, at) => {
    const bars =
      at === 0
        ? bar("bytes", (saved + again) / largest[0], (own[0] + own[2]) / (saved + again))
        : at === 3 && bar("time", timeOf(cost) / largest[1], 1 - cost[4] / timeOf(cost));
    const text = value ? format(value, at) : "";
    const less = own[at] !== value && ` with its calls, ${format(own[at], at)} itself`;
    const cell = h("span", {
      class: `agv-cell agv-column-${at} agv-${HUES[at] ?? "text2"}`,
      title: text && `${COLUMNS[at]}: ${text}${less || ""}`,
      text,
    });
    return bars ? [bars, cell] : [cell];
  });
}

/**
 * @param {string} kind "bytes" or "time"
 * @param {number} share of the width
 * @param {number} part of the bar that is dark: the bytes of the line itself, the time of its ops
 * @returns {HTMLElement}
 */
function bar(kind, share, part) {
  const element = h("span", `agv-source-bar agv-source-${kind}`);
  element.style.setProperty("--share", `${100 * Math.min(1, share || 0)}%`);
  element.style.setProperty("--own", `${100 * part}%`);
  return element;
}

/**
 * Make a row of lines open what its numbers consist of.
 *
 * @param {Store} store
 * @param {CallCosts} costs
 * @param {HTMLElement} row
 * @param {HTMLElement} cells which open it when clicked
 * @param {Part} part
 * @param {number} depth
 * @returns {HTMLElement | false} a button, if there is something to open
 */
export function opener(store, costs, row, cells, part, depth) {
  const { scene } = store;
  const own = ownCost(costs, part);
  const partsOf = () => callees(scene, costs, part);
  if (!partsOf().length) return false;
  /** @type {HTMLElement[]} */
  let rows = [];
  const toggle = () => {
    const opens = !rows.length;
    for (const each of rows) each.dispatchEvent(new Event("agv-close"));
    for (const each of rows) each.remove();
    rows = [];
    if (opens) {
      const parts = partsOf();
      rows = parts.slice(0, MAX_PARTS).map((each) => partRow(store, costs, each, depth + 1));
      if (own.some(Boolean)) rows.unshift(ownRow(own, depth + 1));
      if (parts.length > MAX_PARTS) {
        rows.push(h("div", "agv-muted agv-source-more", `and ${parts.length - MAX_PARTS} more`));
      }
      row.after(...rows);
    }
    opened.setAttribute("aria-expanded", String(opens));
    opened.replaceChildren(icon(opens ? "down" : "right"));
  };
  const place = placeOf(part);
  const opened = button(
    `What the numbers consist of: ${place}`,
    "agv-open-part",
    toggle,
    icon("right"),
  );
  opened.setAttribute("aria-expanded", "false");
  cells.classList.add("agv-opens");
  listen(cells, "click", (event) => {
    if (/** @type {Element} */ (event.target).closest("button")) return;
    event.stopPropagation();
    toggle();
  });
  listen(row, /** @type {any} */ ("agv-close"), () => rows.length && toggle());
  return opened;
}

/**
 * @param {Cost} own
 * @param {number} depth
 * @returns {HTMLElement}
 */
function ownRow(own, depth) {
  const label = h("code", "agv-muted", "this line itself");
  label.style.paddingLeft = `${14 * depth + 20}px`;
  const cells = h("span", "agv-source-tag", ...costCells(own));
  return h("div", "agv-source-line agv-source-part", label, cells);
}

/**
 * @param {Store} store
 * @param {CallCosts} costs
 * @param {Part} part
 * @param {number} depth
 * @returns {HTMLElement}
 */
export function partRow(store, costs, part, depth) {
  const { filename, lineno, cost } = part;
  const text = store.sceneIndex.source.get(filename)?.get(lineno)?.trim() ?? "";
  const frame = store.scene.call_frames[part.frames[0][0]];
  const link = filename ? lineLink(store, part) : "no line";
  const label = h(
    "code",
    { title: frame?.function ?? "" },
    link,
    ` ${text || frame?.function || ""}`,
  );
  const cells = h("span", "agv-source-tag", ...costCells(cost));
  const row = h("div", "agv-source-line agv-source-part", label, cells);
  const opens = opener(store, costs, row, cells, part, depth);
  label.prepend(opens || h("span", "agv-open-part"));
  label.style.paddingLeft = `${14 * depth}px`;
  return row;
}
