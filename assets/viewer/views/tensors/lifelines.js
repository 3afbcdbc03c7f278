// @ts-check
/** Lifelines: a row for each storage or for those of identical blocks, with what happened to them. */

import { fillBox, setStroke, tracePath } from "../../canvas/shapes.js";
import { KeptDrawing, clipped } from "../../canvas/size_cache_and_clip_canvas.js";
import { paintTimes, paintTorn } from "../../canvas/paint_time_axis.js";
import { button, chartCanvas, h, listen, onArrows, onResize } from "../../dom.js";
import {
  formatBytes,
  formatCount,
  formatDuration,
  dotted,
  placeOf,
} from "../../scene/format_numbers_and_names.js";
import {
  describeEvent,
  joinUses,
  paintVersionMismatch,
  paintEventMarker,
} from "./event_markers_and_texts.js";
import { paintText, widthOf, write } from "../../canvas/text_fitted_to_width.js";
import { stepAt } from "../../scene/step_of_time_or_node.js";
import { isHeldAt } from "../../scene/storage_holds.js";
import { paintPhases } from "../../canvas/phase_bands.js";
import { namesOf } from "./storage_rows.js";
import { hostTheme, mix } from "../../canvas/theme.js";
import { kindHue, kindOfStorage } from "../../scene/saved_kind_colors.js";
import { TimeWindow } from "../../shell/zoom_and_pan_time_axis.js";
import { placeTooltip } from "../../shell/place_tooltip.js";

/** @typedef {import("../../canvas/text_fitted_to_width.js").Pen} Pen */
/** @typedef {import("../../canvas/size_cache_and_clip_canvas.js").Drawing} Drawing */
/** @typedef {import("./storage_rows.js").Row} Row */
/** @typedef {{rows: Row[], listeners: (() => void)[], peak?: {nbytes: number}}} RowSource */

const ROW_HEIGHT = 26;
const HEAD_HEIGHT = 26;
const AXIS_HEIGHT = 22;
const RIGHT = 24;
const NO_EVENT = { ok: /** @type {const} */ (1), op: "", nbytes: 0, filename: "", lineno: 0 };
/** Width of the column of bytes at the peak. */
const PEAK = 58;
/** Saves and uses of one storage that are not marked one by one. */
const MANY_EVENTS = 12;

/** A mark of a recomputation is moved as far as this. */
const MARK = 12;
/** Room for names below which the path of their module is above them. */
const BOTH = 200;

/** @param {Row} row */
const isBroken = ({ storages }) => storages[0].state === "broken";

export class Lifelines {
  /**
   * @param {import("../../shared_view_state.js").Store} store
   * @param {() => import("../../canvas/theme.js").Palette} palette
   * @param {RowSource} source
   */
  constructor(store, palette, source) {
    this.store = store;
    this.palette = palette;
    this.source = source;
    this.rows = source.rows;
    this.largest = 1;
    this.longest = 4; // characters of a place
    this.rowsHeight = 0;
    this.drawn = false;
    this.canvas = chartCanvas("Lifelines of saved tensors; the table has the same in words");
    this.tooltip = h("div", "agv-tooltip agv-float");
    this.tooltip.hidden = true;
    this.spacer = h("div", "agv-lifelines-rows");
    this.scroller = h(
      "div",
      {
        class: "agv-lifelines-scroll",
        attrs: { role: "group", tabindex: "0", "aria-label": "Lifelines" },
      },
      this.spacer,
    );
    this.range = h("span", "agv-inline");
    this.element = h("div", "agv-lifelines", this.canvas, this.scroller, this.tooltip);
    this.kept = new KeptDrawing(this.canvas);
    this.#fit();
    source.listeners.push(() => {
      this.#fit();
      this.draw();
    });
    listen(this.scroller, "scroll", () => this.draw());
    listen(this.scroller, "click", (event) => this.#click(event));
    listen(this.scroller, "pointermove", (event) => this.#hover(event));
    listen(this.scroller, "pointerleave", () => (this.tooltip.hidden = true));
    onArrows(this.scroller, (step) => this.#move(step));
    const plot = () => {
      const left = this.#left();
      return { left, width: Math.max(1, this.element.clientWidth - left - RIGHT) };
    };
    const first = store.scene.spans.find(({ kind }) => kind === "forward")?.start_ns ?? 0;
    const start = store.scene.storages.reduce((least, { index }) => {
      const [event] = store.sceneIndex.storageEvents[index];
      return Math.min(least, event?.time_ns ?? least);
    }, first);
    this.window = new TimeWindow(store, plot, () => this.draw(), "events", start);
    this.window.listen(this.scroller);
    this.all = button("Show the whole recording", "agv-link", () => this.window.fit(), "show all");
    this.resizer = onResize(this.element, () => this.draw());
    store.subscribe(["time", "selected", "view"], (change) => {
      // The details of the selection may change the size of this view.
      if (change === "selected") requestAnimationFrame(() => this.#scrollToSelected());
      this.draw(change === "time");
    });
  }

  /** Give the rows their height. */
  #fit() {
    const { rows } = this.source;
    this.rows = rows;
    this.largest = rows.reduce((most, { nbytes }) => Math.max(most, nbytes), 1);
    this.longest = Math.max(4, ...rows.map(({ storages }) => placeOf(storages[0]).length));
    this.spacer.style.height = `${rows.length * ROW_HEIGHT}px`;
    this.rowsHeight = HEAD_HEIGHT + rows.length * ROW_HEIGHT + AXIS_HEIGHT;
  }

  destroy() {
    this.resizer.disconnect();
  }

  /** @returns {boolean} whether rows hold less at the peak than in all */
  #hasPeak() {
    const sum = this.rows.reduce((all, { nbytes }) => all + nbytes, 0);
    return sum > 1.2 * (this.source.peak?.nbytes ?? sum);
  }

  /** @returns {boolean} whether there is room for the lines and for both columns of bytes */
  #isWide() {
    return this.element.clientWidth >= 760;
  }

  /** @returns {number} x at which the lifelines begin */
  #left() {
    const { clientWidth } = this.element;
    if (!this.#isWide()) return 216;
    return Math.min(440, Math.max(250, clientWidth * 0.33)) + (this.#hasPeak() ? PEAK : 0);
  }

  /** @returns {{bytes: number, line: number, place: boolean}} right end of the first figure; end of names; whether lines have a column */
  #columns() {
    const bytes = this.#left() - (this.#hasPeak() && this.#isWide() ? PEAK : 0) - 10;
    const place = bytes > 330;
    if (place) return { bytes, line: bytes - 64 - Math.min(this.longest * 6, 150), place };
    return { bytes, line: bytes - (this.#isWide() ? 56 : 46), place };
  }

  /**
   * @param {number} time
   * @returns {number}
   */
  #x(time) {
    return this.window.x(time);
  }

  /**
   * Scroll to the first row whose unpack failed, and zoom to its events.
   *
   * @returns {boolean} whether that drew the view
   */
  #showBroken() {
    const at = this.rows.findIndex(isBroken);
    if (at < 0) return false;
    const rows = Math.floor(this.scroller.clientHeight / ROW_HEIGHT);
    const above = Math.max(0, Math.min(3, rows - 2)); // rows before it that are visible, too
    if (at > above) this.scroller.scrollTop = (at - above) * ROW_HEIGHT;
    const events = this.#eventsOf(this.rows[at]);
    if (events.length < 2) return false;
    this.window.show(events[0].time_ns, events[events.length - 1].time_ns);
    return true;
  }

  /** @param {boolean} [isSame] whether only the replayed time is another one */
  draw(isSame = false) {
    if (!this.drawn && this.element.clientWidth && this.element.clientHeight) {
      this.drawn = true; // showing draws again
      if (this.#showBroken()) return;
    }
    const paint = (/** @type {Drawing} */ drawing) => this.#paintRows(drawing);
    this.kept.draw(this.palette(), isSame, paint, (drawing) => this.#paintTime(drawing));
  }

  /** @param {Drawing} drawing */
  paint(drawing) {
    this.#paintRows(drawing);
    this.#paintTime(drawing);
  }

  /** @param {Drawing} drawing */
  #paintRows({ pen, width, height }) {
    const { scrollTop } = this.scroller;
    const { view, start } = this.window;
    const isWhole = view[0] <= start && view[1] >= this.store.sceneIndex.end;
    const times = view.map((time) => formatDuration(time)).join(" to ");
    this.range.replaceChildren(...(isWhole ? [] : [`showing ${times}, `, this.all]));
    const x = (/** @type {number} */ time) => this.#x(time);
    const bottom = height - AXIS_HEIGHT;
    const plot = { left: this.#left() - 3, top: 0, right: width, bottom };
    clipped(pen, plot, () => {
      paintPhases(pen, x, plot.left, this.store.scene.spans, HEAD_HEIGHT, bottom);
    });
    const small = { size: 10, color: this.palette().text2 };
    write(pen, "tensor", 12, HEAD_HEIGHT / 2, small);
    const right = /** @type {const} */ ({ ...small, align: "right" });
    const columns = this.#columns();
    const wide = this.#isWide();
    if (columns.place) write(pen, "line", columns.line, HEAD_HEIGHT / 2, small);
    if (wide || !this.#hasPeak()) {
      write(pen, this.#hasPeak() ? "in all" : "bytes", columns.bytes, HEAD_HEIGHT / 2, right);
    }
    if (this.#hasPeak()) write(pen, "at peak", plot.left - 7, HEAD_HEIGHT / 2, right);
    const first = Math.floor(scrollTop / ROW_HEIGHT);
    const last = Math.min(
      this.rows.length,
      first + Math.ceil((bottom - HEAD_HEIGHT) / ROW_HEIGHT) + 1,
    );
    clipped(pen, { left: 0, top: HEAD_HEIGHT, right: width, bottom }, () => {
      for (let at = first; at < last; at++) {
        this.#paintRow(pen, this.rows[at], HEAD_HEIGHT + at * ROW_HEIGHT - scrollTop, width);
      }
    });
    const { end } = this.store.sceneIndex;
    paintTimes(pen, x, this.window.view, bottom + AXIS_HEIGHT / 2, null, this.window.axis);
    if (this.store.scene.summary.torn) {
      paintTorn(pen, { left: x(end), top: HEAD_HEIGHT, right: width, bottom });
    }
  }

  /**
   * @param {Pen} pen
   * @param {Row} row
   * @param {number} top
   * @param {number} width
   */
  #paintRow(pen, row, top, width) {
    const { ctx, palette } = pen;
    const { storages, nbytes, atPeak } = row;
    const [storage] = storages;
    const middle = top + ROW_HEIGHT / 2;
    const broken = isBroken(row);
    const { related } = this.store;
    const isRelated = (/** @type {Row} */ each) =>
      each.storages.some(({ index }) => related.storages.has(index));
    // Of a node that failed, the tensor that was written is selected.
    const selected =
      isRelated(row) && (broken || !this.rows.some((each) => isBroken(each) && isRelated(each)));
    if (broken || selected) {
      const hue = broken ? palette.mutation : palette.backward;
      fillBox(ctx, `${hue}${selected ? "24" : "14"}`, 0, top, width, ROW_HEIGHT);
      fillBox(ctx, hue, 0, top, 2.5, ROW_HEIGHT);
    }
    fillBox(ctx, palette.line, 0, top + ROW_HEIGHT - 1, width, 1);
    const hasPeak = this.#hasPeak();
    const wide = this.#isWide();
    const { bytes, line, place: hasPlace } = this.#columns();
    const color = broken || storage.state === "stale" ? palette.mutation : palette.text;
    const place = placeOf(storage);
    this.#paintName(pen, row, middle, line - 20, color, hasPlace ? "" : place);
    const gray = { size: 10.5, color: palette.text2 };
    if (hasPlace) write(pen, place, line, middle, { ...gray, room: bytes - 56 - line });
    const figure = /** @type {const} */ ({ ...gray, size: 11, align: "right" });
    const held = nbytes ? formatBytes(nbytes) : "not held";
    if (wide || !hasPeak) write(pen, held, bytes, middle, figure);
    const end = this.#left();
    if (hasPeak) write(pen, atPeak ? formatBytes(atPeak) : "0", end - 10, middle, figure);
    const plot = { left: end - 3, top, right: width, bottom: top + ROW_HEIGHT };
    clipped(pen, plot, () => this.#paintLifeline(pen, row, middle));
  }

  /**
   * Write the name of a row, with the path of its module before it or above it.
   *
   * @param {Pen} pen
   * @param {Row} row
   * @param {number} middle
   * @param {number} room
   * @param {string} color
   * @param {string} place written after the path, where no column has it
   */
  #paintName(pen, row, middle, room, color, place) {
    const { storages } = row;
    const whole = namesOf(this.store.scene, storages);
    const { name } = storages[0];
    const { apart = "" } = row;
    const isAbove = room < BOTH || !!place;
    const path = whole.endsWith(name) ? whole.slice(0, -name.length) : "";
    const above = isAbove ? dotted([path.replace(/[. ]$/, ""), apart, place]) : "";
    const y = above ? middle + 5.5 : middle;
    const times = storages.length > 1 ? ` ×${formatCount(storages.length)}` : "";
    const style = { size: 11.5, weight: 600, color };
    const after = apart && !isAbove ? ` ${apart}` : "";
    const rest = room - widthOf(pen, times, style.size, style.weight) - widthOf(pen, after, 10.5);
    const own = path ? name : whole;
    if (widthOf(pen, own, style.size, style.weight) > rest) style.size = 10;
    const long = Math.min(rest, widthOf(pen, own, style.size, style.weight));
    const gray = { size: above ? 9.5 : 10.5, color: pen.palette.text2 };
    if (above) write(pen, above, 12, middle - 6, { ...gray, room });
    const before = above ? "" : path;
    const left = before ? Math.min(rest - long, widthOf(pen, before, gray.size)) : 0;
    if (left) write(pen, before, 12, y, { ...gray, room: left });
    const x = 12 + left;
    write(pen, own, x, y, { ...style, room: rest - x + 12, middle: true });
    if (times) write(pen, times, x + long, y, style);
    if (after) write(pen, after, room + 12, y, { ...gray, align: "right" });
  }

  /**
   * @param {Row} row
   * @returns {import("../../types.js").SceneStorageEvent[]} of all its storages, in their order
   */
  #eventsOf({ storages }) {
    const { storageEvents } = this.store.sceneIndex;
    const { nodes } = this.store.scene;
    const events = storages.flatMap(({ index, holds, node }) => {
      const own = storageEvents[index];
      const first = own.find(({ kind }) => kind === "recomputed");
      if (!first || own.some(({ kind }) => kind === "saved" || kind === "released")) return own;
      // No event tells when what a recomputation saved was used and released: its node ran.
      const [start, end] = holds;
      const isIn = (/** @type {number} */ time) => time >= start && (end < 0 || time <= end);
      const add = (
        /** @type {"unpacked" | "released"} */ kind,
        /** @type {number | undefined} */ time,
      ) =>
        time === undefined || time < 0
          ? []
          : [{ ...NO_EVENT, storage: index, kind, time_ns: time, version: first.version }];
      return [...own, ...add("unpacked", nodes[node]?.runs_ns.find(isIn)), ...add("released", end)];
    });
    return storages.length > 1 ? events.sort((a, b) => a.time_ns - b.time_ns) : events;
  }

  /**
   * Paint what a row holds, as thick as its bytes, and its events. Of a row of several storages,
   * saves and uses are the steps of its thickness.
   *
   * @param {Pen} pen
   * @param {Row} row
   * @param {number} middle
   */
  #paintLifeline(pen, row, middle) {
    const { ctx, palette } = pen;
    const { storages } = row;
    const [storage] = storages;
    const all = this.#eventsOf(row);
    const hueOf = (/** @type {{kind: string} | undefined} */ event) =>
      event?.kind === "recomputed" ? palette.recompute : palette.saved;
    const broken = storage.state === "broken";
    const plain = hueOf(all.find(({ kind }) => kind === "saved" || kind === "recomputed"));
    const hue = broken || storage.state === "stale" ? palette.mutation : plain;
    /** @type {[time: number, nbytes: number][]} */
    const changes = [];
    const { end } = this.store.sceneIndex;
    let open = false;
    for (const { holds, nbytes } of storages) {
      for (let at = 0; at < holds.length; at += 2) {
        changes.push([holds[at], nbytes]);
        if (holds[at + 1] < 0) open = true;
        else changes.push([holds[at + 1], -nbytes]);
      }
    }
    changes.sort((a, b) => a[0] - b[0]);
    const { scene } = this.store;
    const own = kindHue(scene, kindOfStorage(scene, storage.storage_id), hostTheme());
    ctx.fillStyle =
      own && hue === plain ? mix(own, palette.surface, 0.7) : mix(hue, palette.surface, 0.4);
    let held = 0;
    changes.forEach(([time, change], at) => {
      held += change;
      const next = changes[at + 1]?.[0] ?? end;
      if (held <= 0 || next === time) return;
      const left = this.#x(time);
      const thick = 2 + 14 * Math.sqrt(held / this.largest);
      const least = storages.length > 1 ? 0 : 2;
      ctx.fillRect(left, middle - thick / 2, Math.max(least, this.#x(next) - left), thick);
    });
    if (open) {
      ctx.fillStyle = palette.surface;
      for (const gap of [7, 3]) ctx.fillRect(this.#x(end) - gap, middle - 3.5, 2, 7);
    }
    const isAlone = storages.length === 1;
    const marked = markedEvents(scene, storages, all, changes);
    const events = joinUses(marked, all, (time) => this.#x(time));
    if (changes.length && changes[0][0] < this.window.view[0]) {
      write(pen, "‹", this.#left() + 2, middle, { size: 14, weight: 600, color: palette.text });
    }
    const hasVersions = new Set(events.flatMap((each) => each.version ?? [])).size > 1;
    let free = -Infinity; // x from which no marker is painted yet
    const lastWrite = events.findLastIndex((each) => each.kind === "written");
    /** @type {[number, number]} */
    let room = [0, 0]; // the widest gap between two markers after the last write
    let latest = "";
    events.forEach((each, at) => {
      const x = this.#x(each.time_ns);
      if (at > lastWrite && x - 10 - free > room[1] - room[0]) room = [free, x - 10];
      const version = each.version === null || !hasVersions ? "" : `v${each.version}`;
      const isLast = at === events.length - 1;
      const failed = each.kind === "unpacked" && !each.ok;
      const after = paintEventMarker(pen, each, x, middle, hueOf(each), free, {
        movable:
          failed ||
          isLast ||
          each.kind === "released" ||
          each.kind === "used" ||
          (each.kind === "recomputed" && free - x < MARK) ||
          (isAlone && each.kind === "written"),
        version: version === latest ? "" : version,
      });
      if (after !== free && version) latest = version;
      free = after;
    });
    if (lastWrite < 0 && broken && events.length) {
      const refused = events.find((each) => !each.ok && each.op && each.version === null);
      const text = refused ? `needed again, but ${refused.op}` : "recomputed differently";
      const style = { size: 9.5, weight: 600, color: palette.mutation };
      const long = widthOf(pen, text, style.size, style.weight);
      const fits = free + 6 + long < this.element.clientWidth;
      const before = this.#x(events[events.length - 1].time_ns) - long - 14;
      if (fits || before > this.#left()) {
        paintText(pen, text, fits ? free + 6 : before, middle, style);
      }
    }
    if (lastWrite < 0 || !broken) return;
    const writes = marked.filter(({ kind }) => kind === "written");
    const harmful = writes.filter(({ ok }) => !ok);
    const shown = harmful.length ? harmful : writes.slice(-1);
    paintVersionMismatch(pen, storage, shown, room, middle);
  }

  /** @param {Drawing} drawing */
  #paintTime({ pen: { ctx, palette }, height }) {
    if (this.store.time === null) return;
    const bottom = height - AXIS_HEIGHT;
    const x = Math.round(this.#x(this.store.time)) + 0.5;
    fillBox(
      ctx,
      `${palette.canvas}b0`,
      x,
      HEAD_HEIGHT,
      this.#x(this.store.sceneIndex.end) - x + 6,
      bottom - HEAD_HEIGHT,
    );
    setStroke(ctx, palette.text, 1.4);
    tracePath(ctx, [x, 2], [x, bottom]);
    ctx.stroke();
  }

  /**
   * @param {{offsetY: number}} event on the spacer, whose y starts at the first row
   * @returns {Row | undefined}
   */
  #rowAt(event) {
    return this.rows[Math.floor(event.offsetY / ROW_HEIGHT)];
  }

  /** @param {MouseEvent} event */
  #click(event) {
    const storage = event.target === this.spacer ? this.#rowAt(event)?.storages[0] : undefined;
    this.store.set("selected", storage ? { kind: "storage", index: storage.index } : null);
  }

  /** @param {1 | -1} step */
  #move(step) {
    const { selected } = this.store;
    const at =
      selected?.kind === "storage"
        ? this.rows.findIndex(({ storages }) =>
            storages.some(({ index }) => index === selected.index),
          )
        : -1;
    const next = this.rows[at < 0 ? 0 : at + step];
    if (next) this.store.set("selected", { kind: "storage", index: next.storages[0].index });
  }

  /** @param {PointerEvent} event */
  #hover(event) {
    const row = event.target === this.spacer ? this.#rowAt(event) : undefined;
    this.tooltip.hidden = !row;
    if (!row) return;
    const [storage] = row.storages;
    const nearest = this.#eventsOf(row)
      .map((each) => ({ each, distance: Math.abs(this.#x(each.time_ns) - event.offsetX) }))
      .sort((a, b) => a.distance - b.distance)[0];
    const { scene } = this.store;
    const lines = [`${namesOf(scene, row.storages)} · ${storage.shape} ${storage.dtype}`];
    lines.push(kindOfStorage(scene, storage.storage_id));
    if (nearest && nearest.distance < 14) lines.push(describeEvent(nearest.each, scene));
    else lines.push(...storage.slots.slice(0, 3));
    const y = event.offsetY - this.scroller.scrollTop + HEAD_HEIGHT;
    const { clientWidth, clientHeight } = this.element;
    placeTooltip(this.tooltip, lines, event.offsetX, y, clientWidth, clientHeight);
  }

  #scrollToSelected() {
    const { storages } = this.store.related;
    const isIn = (/** @type {Row} */ row) => row.storages.some(({ index }) => storages.has(index));
    const top = this.rows.findIndex(isIn) * ROW_HEIGHT;
    if (top < 0) return;
    const room = this.scroller.clientHeight - ROW_HEIGHT;
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    else if (top > this.scroller.scrollTop + room) this.scroller.scrollTop = top - room;
  }
}

/**
 * Return the events of a row that are marked.
 *
 * @param {import("../../types.js").Scene} scene
 * @param {Row["storages"]} storages of the row
 * @param {import("../../types.js").SceneStorageEvent[]} all their events by time
 * @param {[time: number, nbytes: number][]} changes of the bytes that they hold, by time
 */
export function markedEvents(scene, storages, all, changes) {
  const isAlone = storages.length === 1;
  // What another saved tensor still holds is not released. Of a row of several storages, the
  // first save and the last release of each time in which any of them is held are marked.
  const holders = (/** @type {number} */ time) =>
    storages.filter((each) => isHeldAt(each, time)).length;
  let before = 0;
  const starts = new Set(changes.flatMap(([time, by]) => ((before += by) === by ? [time] : [])));
  // One storage that many nodes save and use, as in a loop, is marked like several.
  const isPlain = isAlone && all.length < MANY_EVENTS;
  // A block is recomputed while the one before it is still held, in each step.
  const blocks = new Set();
  return all.filter(({ storage: at, kind, ok, time_ns: time }) => {
    // A write before the save made the values that are saved; of several, harmless ones are many.
    if (kind === "written" && ok) return isAlone && isHeldAt(scene.storages[at], time);
    if (kind === "written" || kind === "cloned" || !ok) return true;
    if (kind === "released") return !holders(time);
    if (kind === "unpacked") return isPlain || isAlone || holders(time) === 1;
    const block = `${stepAt(scene, time)} ${scene.storages[at].module}`;
    const isFirst = kind === "recomputed" && !blocks.has(block);
    if (isFirst) blocks.add(block);
    return starts.delete(time) || isPlain || isFirst;
  });
}
