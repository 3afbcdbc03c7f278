// @ts-check
/** Rows of cells: ranks by steps, the odd ranks of each group first. */

import { write, widthOf } from "../canvas/text_fitted_to_width.js";
import { claim, h, listen } from "../dom.js";
import { formatCount, plural } from "../scene/format_numbers_and_names.js";
import {
  CellImages,
  ENDED,
  MODES,
  NOT_FINITE,
  OTHER_COLLECTIVES,
  OTHER_OPS,
  RECORDED,
  formatValue,
  valuesOf,
} from "./heat_map_as_pixels.js";
import { VirtualCanvas } from "./virtually_scrolled_canvas.js";

/** @typedef {import("./selected_rank_and_coloring.js").RunState} RunState */
/** @typedef {import("../canvas/size_cache_and_clip_canvas.js").Drawing} Drawing */

const AXIS = 20;
const HEADER = 22;
const ODD_ROW = 18;
const RIGHT = 10;
const MOST_CELL = 40;
const ZOOM = 1.5;

/** @typedef {{y: number, row: number, count: number, height: number}} Band rows of equal height */

export class HeatRows {
  /** cells per fitting cell, in width and in height */
  zoom = 1;
  /** @type {Band[]} */
  #bands = [];
  /** @type {{y: number, group: import("./types.js").RunGroup}[]} */
  #headers = [];
  #cell = 1;
  #gutter = 64;
  #height = 0;
  /** @type {[row: number, column: number] | null} the cell that the arrow keys moved to */
  #cursor = null;

  /**
   * @param {RunState} state
   * @param {() => import("../canvas/theme.js").Palette} palette
   */
  constructor(state, palette) {
    this.state = state;
    this.images = new CellImages(state.scene);
    const { ranks, steps } = state.scene;
    const label = `${plural(ranks.length, "rank")} by ${plural(steps.length, "step")}; arrow keys move, Enter selects a rank`;
    this.view = new VirtualCanvas(
      {
        label,
        size: (width, height) => this.#layout(width, height),
        paint: (drawing, left, top) => this.#paint(drawing, left, top),
        tooltip: (x, y) => {
          const cell = this.#cellAt(x, y);
          return cell && this.#describe(...cell);
        },
        click: (x, y) => {
          const row = this.#rowAt(y);
          if (row >= 0) state.select(row);
        },
      },
      palette,
    );
    const natural = 24 + state.scene.groups.length * HEADER + ranks.length * ODD_ROW + AXIS;
    this.rowsHeight = Math.max(110, natural);
    this.announcer = h("div", { class: "agv-visually-hidden", attrs: { "aria-live": "polite" } });
    this.view.element.append(this.announcer);
    const { scroller } = this.view;
    listen(scroller, "keydown", (event) => this.#key(event));
    listen(
      scroller,
      "wheel",
      (event) => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        const box = scroller.getBoundingClientRect();
        const at = [event.clientX - box.left, event.clientY - box.top];
        this.zoomBy(Math.exp(-event.deltaY / 200), at[0], at[1]);
      },
      { passive: false },
    );
    state.listeners.push(() => this.view.schedule());
  }

  /**
   * Zoom around a point of the viewport.
   *
   * @param {number} factor 0 shows all steps
   * @param {number} [x]
   * @param {number} [y]
   */
  zoomBy(factor, x = this.view.scroller.clientWidth / 2, y = this.view.scroller.clientHeight / 2) {
    const { scroller } = this.view;
    const zoom = factor ? Math.max(1, Math.min(this.zoom * factor, this.#mostZoom())) : 1;
    const column = (scroller.scrollLeft + x - this.#gutter) / this.#cell;
    const share = (scroller.scrollTop + y) / (this.#height || 1);
    this.zoom = zoom;
    const { clientWidth, clientHeight } = scroller;
    const size = this.#layout(clientWidth, clientHeight);
    this.view.spacer.style.width = `${size.width}px`;
    this.view.spacer.style.height = `${size.height}px`;
    scroller.scrollLeft = column * this.#cell + this.#gutter - x;
    scroller.scrollTop = share * this.#height - y;
    this.view.schedule();
  }

  /** @param {import("./types.js").RunGroup} group */
  showGroup(group) {
    const header = this.#headers.find((each) => each.group === group);
    if (header) this.view.scroller.scrollTop = header.y - AXIS;
  }

  #mostZoom() {
    const fit = this.#fit(this.view.scroller.clientWidth);
    return Math.max(1, MOST_CELL / fit);
  }

  /**
   * @param {number} width
   * @returns {number} width of a cell at which all steps are visible
   */
  #fit(width) {
    const { steps } = this.state.scene;
    return Math.min(MOST_CELL, (width - this.#gutter - RIGHT) / Math.max(1, steps.length));
  }

  /**
   * @param {number} width
   * @param {number} height
   * @returns {{width: number, height: number}}
   */
  #layout(width, height) {
    const { groups, ranks, steps } = this.state.scene;
    this.#gutter = width < 460 ? 52 : 66;
    this.#cell = this.#fit(width) * this.zoom;
    const odd = groups.reduce((sum, group) => sum + group.odd, 0);
    const fixed = AXIS + groups.length * HEADER + odd * ODD_ROW + 8;
    const fit = (height - fixed) / Math.max(1, ranks.length - odd);
    const dense = Math.min(ODD_ROW, Math.max(1, Math.floor(fit)) * this.zoom);
    this.#bands = [];
    this.#headers = [];
    let y = AXIS;
    for (const group of groups) {
      this.#headers.push({ y, group });
      y += HEADER;
      for (const [row, count, each] of [
        [group.first, group.odd, ODD_ROW],
        [group.first + group.odd, group.count - group.odd, dense],
      ]) {
        if (count) this.#bands.push({ y, row, count, height: each });
        y += count * each;
      }
    }
    this.#height = y + 8;
    return { width: this.#gutter + steps.length * this.#cell + RIGHT, height: this.#height };
  }

  /**
   * @param {Drawing} drawing
   * @param {number} left
   * @param {number} top
   */
  #paint({ pen, width, height }, left, top) {
    const { ctx, palette } = pen;
    const { steps, ranks } = this.state.scene;
    const fold = this.#cell >= 1 ? 1 : 2 ** Math.ceil(-Math.log2(this.#cell));
    const image = this.images.get(this.state.mode, fold, palette);
    const pitch = this.#cell * fold;
    const first = Math.max(0, Math.floor(left / pitch));
    const count = Math.min(image.width - first, Math.ceil((width - this.#gutter) / pitch) + 1);
    const x = this.#gutter + first * pitch - left;
    ctx.clearRect(0, 0, width, height);
    ctx.imageSmoothingEnabled = false;
    ctx.save();
    ctx.beginPath();
    ctx.rect(this.#gutter, AXIS, width, height);
    ctx.clip();
    for (const band of this.#bands) {
      const above = Math.max(0, Math.floor((top - band.y) / band.height));
      const rows = Math.min(band.count - above, Math.ceil(height / band.height) + 2);
      const y = band.y + above * band.height - top;
      if (rows <= 0 || y > height) continue;
      const size = [count * pitch, rows * band.height];
      ctx.drawImage(image, first, band.row + above, count, rows, x, y, size[0], size[1]);
      this.#paintGaps(pen, { x, y, first, count, rows, pitch }, band, fold);
    }
    ctx.restore();
    this.#paintRowLabels(pen, height, top);
    this.#paintHeaders(pen, width, height, top);
    this.#paintAxis(pen, width, left);
    const row = this.#cursor?.[0] ?? -1;
    for (const [at, color] of /** @type {const} */ ([
      [this.state.row, palette.backward],
      [row, palette.text],
    ])) {
      const place = at >= 0 && at < ranks.length ? this.#placeOf(at) : null;
      if (!place || place.y - top < AXIS) continue;
      ctx.strokeStyle = color;
      ctx.lineWidth = 1.5;
      const cursor = at === row && this.#cursor ? this.#cursor[1] : -1;
      const from = cursor < 0 ? this.#gutter : this.#gutter + cursor * this.#cell - left;
      const wide = cursor < 0 ? steps.length * this.#cell - left : Math.max(4, this.#cell);
      ctx.strokeRect(from - 0.5, place.y - top - 0.5, wide + 1, place.height + 1);
    }
  }

  /**
   * Separate cells that are large enough by lines.
   *
   * @param {import("../canvas/text_fitted_to_width.js").Pen} pen
   * @param {{x: number, y: number, first: number, count: number, rows: number, pitch: number}} part
   * @param {Band} band
   * @param {number} fold
   */
  #paintGaps({ ctx, palette }, { x, y, count, rows, pitch }, band, fold) {
    ctx.fillStyle = palette.surface;
    if (band.height >= 6) {
      for (let row = 1; row <= rows; row++) {
        ctx.fillRect(x, Math.round(y + row * band.height) - 1, count * pitch, 1);
      }
    }
    if (fold === 1 && pitch >= 6) {
      for (let column = 1; column <= count; column++) {
        ctx.fillRect(Math.round(x + column * pitch) - 1, y, 1, rows * band.height);
      }
    }
  }

  /**
   * @param {import("../canvas/text_fitted_to_width.js").Pen} pen
   * @param {number} height
   * @param {number} top
   */
  #paintRowLabels(pen, height, top) {
    const { palette } = pen;
    const { ranks } = this.state.scene;
    for (const band of this.#bands) {
      const every =
        band.height >= 11
          ? 1
          : ([2, 5, 10, 20, 50, 100, 200, 500].find((n) => n * band.height >= 15) ?? 1000);
      for (let at = Math.max(0, Math.floor((top - band.y) / band.height)); at < band.count; at++) {
        const y = band.y + (at + 0.5) * band.height - top;
        if (y > height) break;
        const { rank, odd, is_complete } = ranks[band.row + at];
        if (y < AXIS + 4) continue;
        if (every > 1 && (rank % every || (at + 1) * band.height < 8)) continue;
        const bad = odd.length > 0 || !is_complete;
        if (bad) {
          pen.ctx.fillStyle = palette.mutation;
          pen.ctx.fillRect(2, y - band.height / 2 + 2, 3, Math.max(1, band.height - 5));
        }
        write(pen, formatCount(rank), this.#gutter - 6, y, {
          size: 10.5,
          color: bad ? palette.mutation : palette.text2,
          weight: bad ? 600 : 400,
          align: "right",
        });
      }
    }
  }

  /**
   * @param {import("../canvas/text_fitted_to_width.js").Pen} pen
   * @param {number} width
   * @param {number} height
   * @param {number} top
   */
  #paintHeaders(pen, width, height, top) {
    const { ctx, palette } = pen;
    for (const { y, group } of this.#headers) {
      const at = y - top;
      if (at > height || at < AXIS - HEADER) continue;
      ctx.fillStyle = palette.surface;
      ctx.fillRect(0, at, width, HEADER - 2);
      const equal = group.count - group.odd;
      const two = group.count === 2 && group.odd;
      const words = two
        ? ["they differ"]
        : [
            group.count > 1 ? `${formatCount(equal)} of ${formatCount(group.count)} equal` : "",
            group.odd ? `${formatCount(group.odd)} odd` : "",
          ];
      const text = group.label;
      const room = width - 20;
      write(pen, text, 10, at + HEADER / 2 + 1, {
        size: 11,
        color: palette.text,
        weight: 600,
        room,
      });
      const after = 10 + widthOf(pen, text, 11, 600) + 10;
      write(pen, words.filter(Boolean).join(" · "), after, at + HEADER / 2 + 1, {
        size: 11,
        color: group.odd ? palette.mutation : palette.text2,
        room: Math.max(1, width - after - 8),
      });
    }
  }

  /**
   * @param {import("../canvas/text_fitted_to_width.js").Pen} pen
   * @param {number} width
   * @param {number} left
   */
  #paintAxis(pen, width, left) {
    const { ctx, palette } = pen;
    const { steps } = this.state.scene;
    ctx.fillStyle = palette.surface;
    ctx.fillRect(0, 0, width, AXIS);
    ctx.fillStyle = palette.line;
    ctx.fillRect(0, AXIS - 1, width, 1);
    write(pen, "step", this.#gutter - 6, AXIS / 2, {
      size: 10,
      color: palette.text2,
      align: "right",
    });
    const least = widthOf(pen, formatCount(steps.at(-1) ?? 0), 10) + 14;
    const every =
      [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000].find((n) => n * this.#cell >= least) ??
      10_000;
    for (let at = Math.ceil(left / this.#cell / every) * every; at < steps.length; at += every) {
      const x = this.#gutter + (at + 0.5) * this.#cell - left;
      if (x > width - 4) break;
      write(pen, formatCount(steps[at]), x, AXIS / 2, {
        size: 10,
        color: palette.text2,
        align: "center",
      });
    }
  }

  /**
   * @param {number} row
   * @returns {{y: number, height: number} | null}
   */
  #placeOf(row) {
    const band = this.#bands.find((each) => row >= each.row && row < each.row + each.count);
    return band ? { y: band.y + (row - band.row) * band.height, height: band.height } : null;
  }

  /**
   * @param {number} y in the viewport
   * @returns {number} -1 for none
   */
  #rowAt(y) {
    if (y < AXIS) return -1;
    const at = y + this.view.scroller.scrollTop;
    const band = this.#bands.find((each) => at >= each.y && at < each.y + each.count * each.height);
    return band ? band.row + Math.floor((at - band.y) / band.height) : -1;
  }

  /**
   * @param {number} x
   * @param {number} y
   * @returns {[row: number, column: number] | null}
   */
  #cellAt(x, y) {
    const row = this.#rowAt(y);
    if (row < 0) return null;
    const column = Math.floor((x + this.view.scroller.scrollLeft - this.#gutter) / this.#cell);
    return [row, x < this.#gutter || column >= this.state.scene.steps.length ? -1 : column];
  }

  /**
   * @param {number} row
   * @param {number} column -1 for the whole row
   * @returns {(Node | string)[]}
   */
  #describe(row, column) {
    const { scene } = this.state;
    const { rank, odd, end, is_complete, group, holds_parts } = scene.ranks[row];
    const line = (/** @type {string} */ text, bad = false) =>
      h("div", bad ? "agv-mutation" : "", text);
    const title = column < 0 ? `rank ${rank}` : `rank ${rank}, step ${scene.steps[column]}`;
    const parts = [h("div", "agv-strong", title)];
    if (column < 0) {
      parts.push(...odd.map((text) => line(text, true)));
      if (!is_complete) parts.push(line(end, true));
      return parts;
    }
    const at = row * scene.steps.length + column;
    const state = scene.cells.state[at];
    if (!(state & RECORDED)) return [...parts, line("this rank recorded nothing in this step")];
    const ops = scene.cells.ops[at];
    const usual = scene.groups[group].usual_ops[column];
    if (ops >= 0) {
      const others = ops === usual || usual === null ? "" : `, most ranks ${formatCount(usual)}`;
      parts.push(line(`${plural(ops, "op")}${others}`, (state & OTHER_OPS) > 0));
    }
    if (state & OTHER_OPS) parts.push(line("other ops than most ranks", true));
    if (state & OTHER_COLLECTIVES) parts.push(line("other collectives than most ranks", true));
    if (!(state & ENDED)) parts.push(line("this step did not end"));
    if (state & NOT_FINITE) parts.push(line("a loss is NaN or infinite", true));
    for (const mode of /** @type {const} */ (["time", "first", "saved", "gradient", "loss"])) {
      const value = valuesOf(scene, mode)?.[at] ?? NaN;
      const part = mode === "gradient" && holds_parts ? " of this rank's part" : "";
      if (!Number.isNaN(value)) {
        parts.push(line(`${MODES[mode]}${part} ${formatValue(mode, value)}`));
      }
    }
    return parts;
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const { steps, ranks } = this.state.scene;
    const moves = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] };
    const move = moves[/** @type {keyof typeof moves} */ (event.key)];
    if (move) {
      const [row, column] = this.#cursor ?? [Math.max(0, this.state.row) - move[0], -move[1]];
      this.#cursor = [
        Math.max(0, Math.min(ranks.length - 1, row + move[0])),
        Math.max(0, Math.min(steps.length - 1, column + move[1])),
      ];
      this.#showCursor();
    } else if (event.key === "Enter" && this.#cursor) this.state.select(this.#cursor[0]);
    else if (event.key === "+" || event.key === "=") this.zoomBy(ZOOM);
    else if (event.key === "-") this.zoomBy(1 / ZOOM);
    else if (event.key === "0") this.zoomBy(0);
    else if (event.key === "Escape" && this.#cursor) {
      this.#cursor = null;
      this.view.show(null, 0, 0);
      this.view.schedule();
    } else return;
    claim(event);
  }

  #showCursor() {
    if (!this.#cursor) return;
    const [row, column] = this.#cursor;
    const place = this.#placeOf(row);
    const { scroller } = this.view;
    if (!place) return;
    const x = this.#gutter + column * this.#cell;
    const { clientWidth, clientHeight, scrollLeft, scrollTop } = scroller;
    if (x < scrollLeft + this.#gutter) scroller.scrollLeft = x - this.#gutter;
    if (x + this.#cell > scrollLeft + clientWidth)
      scroller.scrollLeft = x + this.#cell - clientWidth;
    if (place.y < scrollTop + AXIS) scroller.scrollTop = place.y - AXIS - HEADER;
    if (place.y + place.height > scrollTop + clientHeight) {
      scroller.scrollTop = place.y + place.height - clientHeight;
    }
    const content = this.#describe(row, column);
    this.announcer.textContent = content
      .map((each) => (each instanceof Node ? each.textContent : each))
      .join(", ");
    // The scroll event, which comes later, hides the tooltip of the pointer.
    requestAnimationFrame(() => {
      this.view.show(content, x - scroller.scrollLeft, place.y - scroller.scrollTop);
      this.view.schedule();
    });
  }
}
