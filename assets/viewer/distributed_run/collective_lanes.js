// @ts-check
/** The collectives of a process group: a column for each number, a row for ranks that are alike. */

import { CLOSE } from "../canvas/icon_paths.js";
import { drawGlyph } from "../canvas/draw_icon.js";
import { roundRect, widthOf, write } from "../canvas/text_fitted_to_width.js";
import { mix } from "../canvas/theme.js";
import { h } from "../dom.js";
import { formatCount, formatPlace, plural } from "../scene/format_numbers_and_names.js";
import { VirtualCanvas } from "./virtually_scrolled_canvas.js";

/** @typedef {import("./types.js").CollectiveLanes} Lanes */
/** @typedef {import("../canvas/size_cache_and_clip_canvas.js").Drawing} Drawing */

const ROW = 24;
const TOP = 34;
const CELL = 20;

/** @type {Record<import("./types.js").CellState, string>} */
const WORDS = {
  same: "",
  other: "most ranks call another collective here",
  extra: "most ranks do not call it",
  shifted: "",
  missing: "these ranks do not call it",
  unknown: "not known: the recording ends before",
  none: "none, as on most ranks",
};

/** States that do harm. */
export const HARMFUL = new Set(["other", "extra", "shifted", "missing"]);

/**
 * Return the lanes of one process group.
 *
 * @param {Lanes} lanes
 * @param {() => import("../canvas/theme.js").Palette} palette
 * @param {(rank: number) => void} choose
 * @returns {{element: HTMLElement, view: VirtualCanvas}}
 */
export function makeCollectiveLanes(lanes, palette, choose) {
  const columns = lanes.steps.length;
  let gutter = 90;
  let cell = CELL;
  const cellAt = (/** @type {number} */ x, /** @type {number} */ y) => {
    const lane = lanes.lanes[Math.floor((y - TOP) / ROW)];
    const column = Math.floor((x + view.scroller.scrollLeft - gutter) / cell);
    return { lane: y < TOP ? undefined : lane, column: x < gutter ? -1 : column };
  };
  const view = new VirtualCanvas(
    {
      label: `collectives of ${lanes.label}: ${plural(columns, "collective")}, ${plural(lanes.lanes.length, "row")}`,
      size: (width) => {
        gutter = width < 460 ? 74 : 110;
        cell = Math.max(CELL, Math.min(44, Math.floor((width - gutter - 10) / columns)));
        return { width: gutter + columns * cell + 10, height: TOP + lanes.lanes.length * ROW + 4 };
      },
      paint: (drawing, left) => paint(drawing, lanes, gutter, cell, left),
      tooltip: (x, y) => {
        const { lane, column } = cellAt(x, y);
        return lane && column < columns ? describe(lanes, lane, column) : null;
      },
      click: (x, y) => {
        const { lane } = cellAt(x, y);
        if (lane) choose(lane.ranks[0]);
      },
    },
    palette,
  );
  view.element.style.height = `${TOP + lanes.lanes.length * ROW + 20}px`;
  const cut = [
    columns < lanes.total && `${formatCount(columns)} of ${formatCount(lanes.total)} shown`,
    lanes.hidden > 0 && `${formatCount(lanes.hidden)} other kinds of ranks not shown`,
  ].filter(Boolean);
  const names = [...new Set(lanes.calls.map(({ name }) => name))];
  const aside = [names.slice(0, 4).join(", ") + (names[4] ? ", …" : ""), ...cut].join(" · ");
  const title = h("h3", "", lanes.label);
  const head = h("div", "agv-section-head", title, h("span", "agv-muted", aside));
  return { element: h("section", "agv-section", head, view.element), view };
}

/**
 * @param {Drawing} drawing
 * @param {Lanes} lanes
 * @param {number} gutter
 * @param {number} cell
 * @param {number} left
 */
function paint({ pen, width, height }, lanes, gutter, cell, left) {
  const { ctx, palette } = pen;
  const first = Math.max(0, Math.floor(left / cell));
  const until = Math.min(lanes.steps.length, Math.ceil((left + width - gutter) / cell));
  for (let column = first; column < until; column++) {
    const x = gutter + column * cell - left;
    const number = lanes.numbers[column];
    if (column === 0 || lanes.steps[column] !== lanes.steps[column - 1]) {
      ctx.fillStyle = palette.line2;
      ctx.fillRect(Math.round(x), 4, 1, height - 8);
      const next = lanes.steps.findIndex((step, at) => at > column && step !== lanes.steps[column]);
      const room = ((next < 0 ? lanes.steps.length : next) - column) * cell - 6;
      const text = `step ${lanes.steps[column]}`;
      const short = room < widthOf(pen, text, 10) ? String(lanes.steps[column]) : text;
      write(pen, short, x + 4, 10, { size: 10, color: palette.text2 });
    }
    if (number % 5 === 0 || cell >= 28) {
      const style = /** @type {const} */ ({ size: 9.5, color: palette.text3, align: "center" });
      write(pen, formatCount(number), x + cell / 2, 25, style);
    }
    lanes.lanes.forEach((lane, at) => {
      paintCell(pen, lane.states[column], x, TOP + at * ROW, cell);
    });
  }
  ctx.fillStyle = palette.surface;
  ctx.fillRect(0, 0, gutter, height);
  write(pen, "number", gutter - 8, 25, { size: 9.5, color: palette.text3, align: "right" });
  lanes.lanes.forEach((lane, at) => {
    const bad = lane.states.some((state) => HARMFUL.has(state));
    write(pen, lane.label, gutter - 8, TOP + at * ROW + ROW / 2, {
      size: 11,
      color: bad ? palette.mutation : palette.text,
      weight: bad ? 600 : 400,
      align: "right",
      room: gutter - 14,
    });
  });
}

/**
 * @param {import("../canvas/text_fitted_to_width.js").Pen} pen
 * @param {import("./types.js").CellState} state
 * @param {number} x
 * @param {number} y
 * @param {number} cell
 */
function paintCell({ ctx, palette }, state, x, y, cell) {
  if (state === "none") return;
  const [width, height] = [cell - 4, ROW - 6];
  roundRect(ctx, x + 2.5, y + 3.5, width - 1, height - 1, 3);
  ctx.lineWidth = 1;
  if (state === "missing") {
    ctx.fillStyle = palette.mutation;
    ctx.fill();
    drawGlyph(ctx, CLOSE, x + cell / 2, y + ROW / 2, 12, palette.surface);
    return;
  }
  const bad = HARMFUL.has(state);
  const hue = bad ? palette.mutation : palette.text2;
  if (state !== "unknown") {
    ctx.fillStyle = mix(hue, palette.surface, state === "other" ? 0.4 : 0.16);
    ctx.fill();
  }
  ctx.strokeStyle = bad ? palette.mutation : palette.line2;
  ctx.setLineDash(state === "unknown" ? [2, 3] : []);
  ctx.stroke();
  ctx.setLineDash([]);
}

/**
 * @param {Lanes} lanes
 * @param {import("./types.js").Lane} lane
 * @param {number} column -1 for the whole row
 * @returns {HTMLElement[]}
 */
function describe(lanes, lane, column) {
  /** @type {HTMLElement[]} */
  const parts = [h("div", "agv-strong", lane.label)];
  if (column < 0) return parts;
  const state = lane.states[column];
  const number = lane.numbers[column];
  parts.push(
    h(
      "div",
      "",
      `collective ${number < 0 ? lanes.numbers[column] : number}, step ${lanes.steps[column]}`,
    ),
  );
  const call = lanes.calls[lane.calls[column]];
  if (call) {
    const where = formatPlace(call.file, call.line);
    parts.push(h("div", "", [call.name, call.tensors].filter(Boolean).join(" of ")));
    if (where) parts.push(h("div", "", where), h("code", "", call.text));
  }
  const pairing =
    `number ${lane.numbers[column]} in the group, on most ranks ${lanes.numbers[column]}: ` +
    "it is paired with another collective";
  const words = state === "shifted" ? pairing : WORDS[state];
  if (words) {
    parts.push(h("div", HARMFUL.has(state) ? "agv-mutation" : "", words));
  }
  return parts;
}
