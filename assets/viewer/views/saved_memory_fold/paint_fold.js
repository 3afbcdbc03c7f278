// @ts-check
/** Paints the fold: the forward above, the ribbons of saved tensors, backward below. */

import { fillBox, setStroke, tracePath } from "../../canvas/shapes.js";
import { clipped } from "../../canvas/size_cache_and_clip_canvas.js";
import { paintGlyph } from "../../canvas/draw_icon.js";
import { roundRect, widthOf, write } from "../../canvas/text_fitted_to_width.js";
import { mix } from "../../canvas/theme.js";
import {
  formatBytes,
  formatDuration,
  nameRange,
  dotted,
} from "../../scene/format_numbers_and_names.js";
import { heldBytes } from "../../scene/bytes_of_ribbons_and_folds.js";
import { kindColors } from "../../scene/saved_kind_colors.js";
import { isStopped } from "../../scene/sum_and_describe_saved_bytes.js";
import { extentAt, shortNames, startOf, traceRibbon, writtenAt, xAt } from "./ribbon_shape.js";

/** @typedef {import("../../canvas/text_fitted_to_width.js").Pen} Pen */
/** @typedef {import("./ribbon_shape.js").Area} Area */
/** @typedef {import("./ribbon_shape.js").Ribbon} Ribbon */

/**
 * @typedef {object} FoldPicture
 * @property {import("../../types.js").Scene} scene
 * @property {import("../../types.js").SceneFold} fold
 * @property {Ribbon[]} ribbons of the fold
 * @property {number | null} time
 * @property {number} [held] bytes that are held at that time, for all backwards
 * @property {number} work node at work at that time, -1 without one
 * @property {Ribbon | null} hovered
 * @property {Set<Ribbon>} lit
 * @property {Set<number>} planned ids of storages that the budget on display computes again
 * @property {Set<number>} [inputs] ids of storages that it holds as arguments
 * @property {string} theme
 * @property {import("./repaint_changed_ribbons.js").RibbonLayer} [layer] keeps the ribbons between pictures
 */

/** Instructions for reading the picture; the longest that fits is painted. */
const HINTS = [
  "ribbons: saved tensors · middle: bytes · ends: time in ops",
  "middle: bytes · ends: time in ops",
];
const SIDE = 14;
const BAR = 20;
const SCALE = 100_000;
/** Narrower blocks have no label of their own. */
const NARROW = 44;
/** Thinner ribbons have no outline, which would cover them. */
const MIN_OUTLINED = 2.5;
/** Ribbons with a thinner waist are paler. */
const FULL = 1;

/**
 * @param {number} width
 * @param {number} height
 * @returns {Area} in which the ribbons are painted
 */
export function areaOf(width, height) {
  const slim = height < 260;
  const end = slim ? 14 : 26;
  return {
    left: SIDE,
    right: width - SIDE,
    top: (slim ? 4 : 22) + BAR,
    bottom: height - end - BAR,
  };
}

/**
 * @param {import("../../canvas/size_cache_and_clip_canvas.js").Drawing} drawing
 * @param {FoldPicture} picture
 */
export function paintFold({ pen, width, height }, picture) {
  const { ctx, palette } = pen;
  const { scene, fold, ribbons, time } = picture;
  const area = areaOf(width, height);
  const colors = kindColors(scene, picture.theme);
  const some = picture.lit.size > 0;
  const { inputs } = picture;
  const kinds = ribbons.map(({ kind, members }) =>
    inputs && members.some((at) => inputs.has(scene.counted_storages[at].storage_id))
      ? "argument"
      : kind,
  );
  const looks = ribbons.map((ribbon) => {
    const share = time === null ? 1 : shareOf(scene, ribbon, time);
    const faded = some && !picture.lit.has(ribbon);
    return {
      share: faded ? share * 0.25 : share,
      failed: isStopped(scene, fold.step),
      planned: isPlanned(picture, ribbon),
      hovered: ribbon === picture.hovered || (picture.work >= 0 && ribbon.node === picture.work),
      lit: picture.lit.has(ribbon),
    };
  });
  const paintOne = (/** @type {Pen} */ on, /** @type {number} */ at) =>
    paintRibbon(on, area, ribbons[at], colors[kinds[at]] ?? palette.edge, looks[at]);
  if (picture.layer) {
    const state = {
      common: `${fold.index} ${picture.theme} ${Object.values(palette).join()}`,
      looks: looks.map(
        ({ share, planned, hovered, lit }, at) =>
          `${share} ${planned} ${hovered} ${lit} ${kinds[at]}`,
      ),
    };
    picture.layer.paint({ pen, width, height }, area, ribbons, state, paintOne);
  } else ribbons.forEach((_, at) => paintOne(pen, at));
  paintBlocks(pen, area, picture, width);
  paintOpenEnds(pen, area, ribbons, isStopped(scene, fold.step));
  paintWaists(pen, area, picture);
  if (height >= 260) {
    const forward = fold.turn_ns < 0 ? "forward, no backward" : "forward";
    const title = `${forward} ${formatDuration(fold.forward_ns)} →`;
    write(pen, title, SIDE, 11, { size: 11, weight: 600, color: palette.text2 });
    const room = width - 2 * SIDE - widthOf(pen, title, 11, 600) - 16;
    const style = { size: 11, color: palette.text2, align: /** @type {const} */ ("right") };
    const hint = HINTS.find((text) => widthOf(pen, text, 11) <= room);
    // While a time is replayed, the op at work is named there.
    if (hint && time === null) write(pen, hint, width - SIDE, 11, style);
    if (fold.turn_ns >= 0) {
      const back = `← backward ${formatDuration(fold.backward_ns)}`;
      const right = Math.max(width - SIDE, SIDE + widthOf(pen, back, 11, 600));
      write(pen, back, right, height - 13, {
        size: 11,
        weight: 600,
        color: palette.backward,
        align: "right",
      });
    }
  }
  if (time !== null) paintNow(pen, area, picture, time);
  ctx.globalAlpha = 1;
}

/**
 * @param {Pick<FoldPicture, "scene" | "planned">} picture
 * @param {Ribbon} ribbon
 * @returns {boolean} whether the budget on display frees it in the forward
 */
const isPlanned = ({ scene, planned }, { members }) =>
  planned.size > 0 && members.some((at) => planned.has(scene.counted_storages[at].storage_id));

/**
 * @param {import("../../types.js").Scene} scene
 * @param {Ribbon} ribbon
 * @param {number} time
 * @returns {number} share of a ribbon that is held, from 0 to 1
 */
function shareOf(scene, ribbon, time) {
  if (ribbon.elsewhere) return ribbon.saved_ns <= time ? 1 : 0;
  return heldBytes(scene, ribbon, time) / (ribbon.nbytes || 1);
}

/**
 * @param {Pen} pen
 * @param {Area} area
 * @param {Ribbon} ribbon
 * @param {string} hue
 * @param {{share: number, hovered: boolean, lit: boolean, planned: boolean, failed: boolean}} now
 */
function paintRibbon(pen, area, ribbon, hue, { share, hovered, lit, planned, failed }) {
  const { ctx, palette } = pen;
  const whole = { ...area, left: area.left - 1, right: area.right + 1 };
  // Few bytes with a long time are no large area: at its ends, a ribbon is as wide as its time.
  const bytes = Math.min(1, (xAt(area, ribbon.waist[1]) - xAt(area, ribbon.waist[0])) / FULL);
  const strength = 0.1 + (hovered ? 0.9 : 0.78 * Math.max(0.15, bytes)) * share;
  const fill = mix(hue, palette.surface, strength);
  const paint = (/** @type {string} */ color) => {
    ctx.fillStyle = color;
    traceRibbon(ctx, area, ribbon);
    ctx.fill();
  };
  const line = (/** @type {string} */ color, /** @type {number[]} */ dashes) => {
    setStroke(ctx, color, 1);
    ctx.setLineDash(dashes);
    traceRibbon(ctx, area, ribbon);
    ctx.stroke();
    ctx.setLineDash([]);
  };
  if (ribbon.elsewhere) {
    paint(mix(hue, palette.surface, 0.06));
    line(mix(hue, palette.surface, 0.7), [4, 3]);
    return;
  }
  if (ribbon.recomputed || planned) {
    const start = startOf(area, { ...ribbon, recomputed: 1 });
    // The gap of a block is one pale area.
    const gap = mix(palette.recompute, palette.surface, 0.09);
    paint(gap);
    clipped(pen, { ...whole, top: area.top, bottom: start }, () => {
      line(gap, []);
      if (hovered || lit) line(mix(palette.recompute, palette.surface, 0.7), [3, 3]);
    });
    clipped(pen, { ...whole, top: start, bottom: area.bottom + 1 }, () => {
      paint(fill);
      line(palette.surface, []);
    });
    const [left, right] = extentAt(area, ribbon, start) ?? [0, 0];
    fillBox(ctx, palette.recompute, left, start - 1, Math.max(1, right - left - 0.5), 2);
    return;
  }
  paint(fill);
  if (ribbon.state === "broken") {
    const from = ribbon.written < 0 ? area.top : writtenAt(area, ribbon);
    clipped(pen, { ...whole, top: from, bottom: area.bottom + 1 }, () =>
      paint(mix(palette.mutation, palette.surface, 0.75)),
    );
  }
  const widths = [ribbon.top, ribbon.waist, ribbon.bottom].map(
    ([from = 0, to = SCALE]) => to - from,
  );
  const isWide = xAt(area, Math.min(...widths)) - area.left > MIN_OUTLINED;
  if (isWide || ribbon.waist[1] - ribbon.waist[0] > SCALE / 100) {
    line(mix(palette.surface, hue, 0.85), []);
  }
  if (ribbon.state === "broken" && ribbon.written >= 0) {
    const from = writtenAt(area, ribbon);
    const [left, right] = extentAt(area, ribbon, from) ?? [0, 0];
    fillBox(ctx, palette.mutation, left, from - 1, Math.max(2, right - left), 2);
    if (right - left > 16) {
      paintGlyph(ctx, "pencil", (left + right) / 2, from - 9, 12, palette.mutation);
    }
    const [end = -1] = ribbon.bottom;
    if (failed && end >= 0)
      paintGlyph(
        ctx,
        "failed",
        xAt(area, (end + ribbon.bottom[1]) / 2),
        area.bottom,
        14,
        palette.mutation,
      );
  }
  if (hovered) line(palette.text, []);
}

/**
 * Paint the ends of ribbons that no backward read and that are still held: they have none.
 *
 * @param {Pen} pen
 * @param {Area} area
 * @param {Ribbon[]} ribbons
 * @param {boolean} stopped whether backward did not get there
 */
function paintOpenEnds(pen, area, ribbons, stopped) {
  const { ctx, palette } = pen;
  if (stopped) return;
  const kept = ribbons.filter(({ state }) => state === "kept");
  for (const { waist } of kept) {
    const left = xAt(area, waist[0]);
    const width = Math.max(1.5, xAt(area, waist[1]) - left);
    fillBox(ctx, mix(palette.mutation, palette.surface, 0.22), left, area.bottom, width, BAR);
    fillBox(ctx, palette.mutation, left, area.bottom + BAR, width, 2.5);
  }
  const widest = kept.reduce(
    (best, { waist }) => (waist[1] - waist[0] > best[1] - best[0] ? waist : best),
    [0, 0],
  );
  const [left, right] = widest.map((position) => xAt(area, position));
  const text = "no end: still held";
  if (widthOf(pen, text, 10.5, 600) > right - left - 8) return;
  write(pen, text, (left + right) / 2, area.bottom + BAR / 2, {
    size: 10.5,
    weight: 600,
    color: palette.mutation,
    align: "center",
  });
}

/**
 * @param {FoldPicture} picture
 * @returns {string[]} the blocks of its bars and ribbons
 */
const blocksOf = ({ scene, fold, ribbons }) =>
  [...scene.fold_bars.filter((bar) => bar.fold === fold.index), ...ribbons].map(
    ({ block }) => block,
  );

/**
 * Paint the bars of the blocks, above with the time of their forward, below with that of backward.
 *
 * @param {Pen} pen
 * @param {Area} area
 * @param {FoldPicture} picture
 * @param {number} width
 */
function paintBlocks(pen, area, picture, width) {
  const { scene, fold } = picture;
  const { palette } = pen;
  const short = shortNames(blocksOf(picture));
  const align = /** @type {const} */ ("center");
  for (const { fold: of, edge, kind, block, until, lineno, start, end, ns } of scene.fold_bars) {
    const left = xAt(area, start);
    const room = xAt(area, end) - left - 1;
    const between = kind === "between";
    if (of !== fold.index || room < (between ? 3 : 1)) continue;
    const forward = edge === "forward";
    const y = forward ? area.top - BAR : area.bottom + 2;
    const time = ns ? ` · ${formatDuration(ns)}` : "";
    const names = block && (until ? nameRange(short(block), short(until)) : short(block));
    const line = lineno ? `line ${lineno}` : "";
    const forms = {
      block: [block && block + time, names && names + time, names, line && line + time, line],
      region: [
        `compiled region${time}, ${forward ? "saved" : "read"} at once`,
        `compiled region${time}`,
        names,
      ],
      between: [`between ops${time}`, "between ops"],
    }[kind];
    if (between) {
      setStroke(pen.ctx, palette.line2, 1);
      roundRect(pen.ctx, left + 0.5, y + 0.5, room - 1, BAR - 3, 3);
      pen.ctx.stroke();
    } else {
      pen.ctx.fillStyle = mix(forward ? palette.edge : palette.backward, palette.surface, 0.2);
      roundRect(pen.ctx, left, y, room, BAR - 2, Math.min(3, room / 2));
      pen.ctx.fill();
    }
    const text = forms.find((form) => form && widthOf(pen, form, 10.5) < room - 8);
    const style = { size: 10.5, color: between ? palette.text2 : palette.text, align };
    if (text) write(pen, text, left + room / 2, y + BAR / 2 - 1, style);
  }
  if (fold.turn_ns < 0) return;
  const { ctx } = pen;
  const x = Math.min(width - 3, area.right + 7);
  setStroke(ctx, palette.text2, 1.2);
  ctx.setLineDash([3, 3]);
  ctx.beginPath();
  ctx.moveTo(area.right + 2, area.top - BAR / 2);
  ctx.bezierCurveTo(x, area.top, x, area.top, x, area.top + 30);
  ctx.lineTo(x, area.bottom - 30);
  ctx.bezierCurveTo(x, area.bottom, x, area.bottom, area.right + 2, area.bottom + BAR / 2);
  ctx.stroke();
  ctx.setLineDash([]);
}

/**
 * @typedef {{block: string, line: string, extent: [number, number], nbytes: number, again: number}}
 *   Block
 */

/**
 * Return blocks side by side whose names differ in a number, as h.0 and h.1: one rule names all.
 *
 * @param {Block[]} blocks
 * @param {(block: Block) => boolean} [is] blocks of which only one is this are not together
 * @returns {Block[][]}
 */
function runs(blocks, is = () => true) {
  /** @type {Block[][]} */
  const found = [];
  const like = (/** @type {Block} */ { block }) => block.replace(/\d+/g, "#");
  for (const each of blocks) {
    const last = found.at(-1);
    if (each.block && last && like(last[0]) === like(each) && is(last[0]) === is(each)) {
      last.push(each);
    } else found.push([each]);
  }
  return found;
}

/**
 * Return the extents of blocks whose ribbons lie side by side at the waist, or else of lines.
 *
 * @param {Ribbon[]} ribbons
 * @param {(ribbon: Ribbon) => boolean} isAgain whether only backward has it
 * @returns {Block[]}
 */
function waists(ribbons, isAgain) {
  /** @type {Block[]} */
  const found = [];
  for (const ribbon of ribbons) {
    const { block, nbytes, waist } = ribbon;
    const line = block || !ribbon.lineno ? "" : `line ${ribbon.lineno}`;
    let last = found.at(-1);
    if (last?.block !== block || last.line !== line) {
      last = { block, line, extent: [waist[0], waist[1]], nbytes: 0, again: 0 };
      found.push(last);
    }
    last.extent[1] = waist[1];
    last.nbytes += nbytes;
    last.again += isAgain(ribbon) ? nbytes : 0;
  }
  return found;
}

/**
 * Write on the waist of each block its name and what the forward keeps, and below the turn what
 * backward computes again: for all blocks that differ in a number, or once for all of them.
 *
 * @param {Pen} pen
 * @param {Area} area
 * @param {FoldPicture} picture
 */
function paintWaists(pen, area, picture) {
  const { ctx, palette } = pen;
  const { ribbons } = picture;
  const short = shortNames(blocksOf(picture));
  const isAgain = (/** @type {Ribbon} */ ribbon) =>
    !!ribbon.recomputed || isPlanned(picture, ribbon);
  const width = (/** @type {string} */ form) =>
    Math.max(...form.split("\n").map((line) => widthOf(pen, line, 10.5, 600))) + 12;
  const pill = (
    /** @type {string[]} */ forms,
    /** @type {Block[]} */ run,
    /** @type {number} */ share,
  ) => {
    const [left, right] = [run[0].extent[0], run[run.length - 1].extent[1]].map((position) =>
      xAt(area, position),
    );
    const color = share > 0.5 ? palette.recompute : palette.text;
    const text = forms.find((form) => width(form) < right - left - 2);
    if (!text) return;
    const y = area.top + (area.bottom - area.top) * share;
    const lines = text.split("\n");
    const middle = (left + right) / 2;
    const high = 4 + 14 * lines.length;
    ctx.fillStyle = palette.surface;
    roundRect(ctx, middle - width(text) / 2, y - high / 2, width(text), high, 9);
    ctx.fill();
    const style = { size: 10.5, weight: 600, color, align: /** @type {const} */ ("center") };
    lines.forEach((line, at) =>
      write(pen, line, middle, y + 14 * (at - (lines.length - 1) / 2), style),
    );
  };
  const label = (
    /** @type {Block[]} */ run,
    /** @type {(block: Block) => number} */ bytesOf,
    /** @type {string} */ word,
    /** @type {number} */ share,
    /** @type {string} */ part,
  ) => {
    const nameOf = (/** @type {Block} */ { block, line }) =>
      (block ? short(block) : line) || "no module";
    const bytes = (/** @type {Block} */ each) =>
      `${nameOf(each)}${part} · ${formatBytes(bytesOf(each))}`;
    // In a narrow picture, a label on each block would cover it.
    const forms = [
      (/** @type {Block} */ each) => `${bytes(each)} ${word}`,
      bytes,
      (/** @type {Block} */ each) => bytes(each).replace(" · ", "\n"),
    ].slice(0, run.length > 1 && area.right - area.left < 500 ? 2 : 3);
    const fits = (/** @type {typeof forms[0]} */ form) =>
      run.every((each) => {
        const [left, right] = each.extent;
        return width(form(each)) < xAt(area, right) - xAt(area, left) - 2;
      });
    const form = forms.find(fits);
    if (form) {
      for (const each of run) pill([form(each)], [each], share);
      return;
    }
    if (run.length === 1) return;
    const sum = (/** @type {Block[]} */ blocks) =>
      blocks.reduce((total, each) => total + bytesOf(each), 0);
    // Of a loop, the blocks that hold most, and how often they lie here.
    /** @type {Map<string, Block[][]>} */
    const kinds = new Map();
    for (const part of runs(run)) {
      const kind = nameOf(part[0]).replace(/(^|\.)\d+(–\d+)?/g, "$1*");
      kinds.set(kind, [...(kinds.get(kind) ?? []), part]);
    }
    const [[kind, most], ...others] = [...kinds].sort(
      ([, a], [, b]) => sum(b.flat()) - sum(a.flat()),
    );
    const isJoined = ribbons.some(({ count }) => count > 1);
    const times = `${isJoined ? "" : ` ×${most.length}`}${others[0] ? ` +${others.length}` : ""}`;
    const names = most[1]
      ? kind + times
      : others[0]
        ? [...kinds.keys()].join(", ")
        : nameRange(nameOf(run[0]), nameOf(run[run.length - 1]));
    const all = formatBytes(sum(run));
    const text = `${names}${part} · ${all} ${word}`;
    const twoLines = `${names}${part}\n${all} ${word}`;
    pill([...(part ? [] : [`${text} in all`]), text, twoLines], run, share);
  };
  // In a low picture, the pills of the two halves are farther from the turn.
  const [first, second] = area.bottom - area.top < 300 ? [0.28, 0.74] : [0.38, 0.6];
  const all = runs(waists(ribbons, isAgain), ({ again }) => !!again);
  // Blocks that a loop runs in turn are narrow: together they have one label.
  /** @type {Block[]} */
  let narrow = [];
  const labelNarrow = () => {
    if (narrow.length) label(narrow, (each) => each.nbytes - each.again, "saved", first, "");
    narrow = [];
  };
  for (const run of all) {
    const [from, to] = [run[0].extent[0], run[run.length - 1].extent[1]];
    if (xAt(area, to) - xAt(area, from) < NARROW && run[0].again === 0) {
      narrow.push(...run);
      continue;
    }
    labelNarrow();
    const { again } = run[0];
    // A model that is called twice has two runs of the same blocks.
    const calls = all.filter((each) =>
      each.some(({ block }) => block && run.some((own) => own.block === block)),
    );
    const part = calls.length > 1 ? ` (${calls.indexOf(run) + 1} of ${calls.length})` : "";
    label(run, (each) => each.nbytes - each.again, again ? "kept" : "saved", first, part);
    if (again) label(run, (each) => each.again, "recomputed", second, part);
  }
  labelNarrow();
}

/**
 * Mark the time in the forward or in backward, and write what is held then.
 *
 * @param {Pen} pen
 * @param {Area} area
 * @param {FoldPicture} picture
 * @param {number} time
 */
function paintNow(pen, area, { scene, fold, ribbons, work, held: total }, time) {
  const { ctx, palette } = pen;
  const inBackward = fold.turn_ns >= 0 && time >= fold.turn_ns;
  let at = inBackward ? SCALE : 0;
  for (const { top, bottom, saved_ns, read_ns, recomputed } of ribbons) {
    if (!inBackward && saved_ns <= time && !recomputed) at = Math.max(at, top[1]);
    if (inBackward && bottom.length && read_ns <= time) at = Math.min(at, bottom[0]);
  }
  const x = xAt(area, at);
  // Outside of the bars, which have labels.
  const y = inBackward ? area.bottom + BAR + 1 : area.top - BAR - 1;
  const size = inBackward ? 6 : -6;
  ctx.fillStyle = palette.path;
  tracePath(ctx, [x, y], [x - 5, y + size], [x + 5, y + size]);
  ctx.closePath();
  ctx.fill();
  const node = scene.nodes[work];
  if (node && time <= fold.end_ns && area.bottom - area.top > 150) {
    const words = [inBackward ? node.name : node.op || node.name, node.module];
    const text = dotted(words);
    const wide = widthOf(pen, text, 11, 600);
    const room = inBackward ? area.right - 130 : area.right;
    const start = inBackward ? area.left : area.left + 130;
    const left = x + 9 + wide < room ? Math.max(start, x + 9) : Math.min(room, x - 9) - wide;
    const at = inBackward ? area.bottom + BAR + 13 : area.top - BAR - 11;
    write(pen, text, left, at, { size: 11, weight: 600, color: palette.path });
  }
  const held = ribbons.reduce((sum, ribbon) => sum + heldBytes(scene, ribbon, time), 0);
  const text =
    total === undefined || total === held
      ? `${formatBytes(held)} held now`
      : `${formatBytes(held)} of ${formatBytes(total)} held now, for this backward`;
  const width = widthOf(pen, text, 12, 700) + 20;
  const left = Math.max(area.left, Math.min(area.right - width, x - width / 2));
  // Between the labels of both halves.
  const top = (area.top + area.bottom) / 2 - 14;
  ctx.fillStyle = palette.text;
  roundRect(ctx, left, top, width, 24, 6);
  ctx.fill();
  write(pen, text, left + width / 2, top + 12, {
    size: 12,
    weight: 700,
    color: palette.surface,
    align: "center",
  });
}
