// @ts-check
/** Rows of numbers: what lines cost, and what a number consists of. */

import { button, h, listen } from "../../dom.js";
import { icon } from "../../canvas/draw_icon.js";
import { lineLink } from "../panels_and_tables.js";
import { COLUMNS, callees, ownCost } from "../../scene/source_line_costs.js";
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
const HUES = ["saved", "saved", "recompute", "text2", "backward", "recompute"];
/** @type {Record<number, string>} colors of times, by column */
const FILLS = { 3: "text2", 4: "backward", 5: "recompute", 6: "leaf" };

/**
 * @param {number} value
 * @param {number} at
 */
const format = (value, at) => (at < 3 ? formatBytes : at < 8 ? formatDuration : formatCount)(value);

/**
 * @param {Cost} cost
 * @param {Cost} [own] without calls, if it may be less
 * @param {HTMLElement[]} [bytes] the pieces of the bar of bytes
 * @param {number} [longest] time of all lines, for the bar of time
 * @returns {HTMLElement[]} one cell for each column
 */
export function costCells(cost, own = cost, bytes = [], longest = Infinity) {
  return cost.flatMap((value, at) => {
    const bars =
      at === 0
        ? h("span", "agv-source-bar", ...bytes)
        : at === 3 && h("span", "agv-source-bar agv-source-time", ...timePieces(cost, longest));
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
 * @param {Cost} cost
 * @param {number} longest
 * @returns {HTMLElement[]} a piece for each phase
 */
const timePieces = (cost, longest) =>
  cost.flatMap((ns, at) => {
    if (at < 3 || at > 7 || !ns) return [];
    const piece = h("span", { title: `${COLUMNS[at]}: ${formatDuration(ns)}` });
    piece.style.width = `${(100 * ns) / longest}%`;
    piece.style.background = `var(--${FILLS[at] ?? "text3"})`;
    return piece;
  });

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
