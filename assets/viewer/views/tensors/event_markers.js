// @ts-check
/** What happens to a storage, as glyphs on its lifeline and as words. */

import { formatBytes, formatDuration, formatPlace } from "../../scene/format.js";
import { paintGlyph } from "../../canvas/icons.js";
import { roundRect, widthOf, write } from "../../canvas/text.js";
import { mix } from "../../canvas/theme.js";

/** @typedef {import("../../canvas/text.js").Pen} Pen */
/** @typedef {import("../../types.js").SceneMoment} SceneMoment */

/** How far a circle may step aside. */
const CLOSE = 12;

/**
 * One thing that happened to a storage.
 *
 * @param {Pen} pen
 * @param {SceneMoment} moment
 * @param {number} x
 * @param {number} middle
 * @param {string} hue
 * @param {number} free from where on nothing stands yet
 * @returns {number} the same, after it
 */
export function paintMoment(pen, moment, x, middle, hue, free) {
  const { ctx, palette } = pen;
  const failed = moment.kind === "unpacked" && !moment.ok;
  const steps = failed || moment.kind === "written" || moment.kind === "released";
  if (x < free && !steps) return free;
  switch (moment.kind) {
    case "saved":
    case "recomputed": {
      ctx.fillStyle = hue;
      ctx.fillRect(x - 2, middle - 7, 4, 14);
      if (moment.version === null) return x + 6;
      return paintVersion(pen, `v${moment.version}`, x + 5, middle, hue) + 4;
    }
    case "written": {
      const at = Math.max(x, free + 2) + 6;
      paintDot(ctx, at, middle, 8, palette.surface);
      paintGlyph(ctx, "pencil", at, middle, 13, palette.mutation);
      if (moment.version === null) return at + 9;
      return paintVersion(pen, `v${moment.version}`, at + 8, middle, palette.mutation) + 4;
    }
    case "unpacked":
      if (failed) {
        paintGlyph(ctx, "failed", x, middle, 16, palette.mutation, palette.surface);
      } else {
        paintDot(ctx, x, middle, 7, palette.surface);
        paintGlyph(ctx, "check", x, middle, 13, palette.saved);
      }
      return x + 8;
    case "cloned":
      paintDot(ctx, x, middle, 8, palette.surface);
      paintGlyph(ctx, "clone", x, middle, 13, palette.recompute);
      return x + 9;
    default: {
      // One circle stands for all that were let go at once.
      if (free - x > CLOSE) return free;
      const at = Math.max(x, free + 4);
      paintDot(ctx, at, middle, 3.6, palette.surface, palette.text2);
      return at + 4;
    }
  }
}

/**
 * What happened, when and where.
 *
 * @param {SceneMoment} moment
 * @returns {string}
 */
export function momentWords(moment) {
  const words = {
    saved: "saved",
    recomputed: "saved again by recomputation",
    written: `written${moment.op ? ` by ${moment.op}` : ""}`,
    unpacked: moment.ok ? "taken back" : "taken back at another version",
    cloned: `cloned before a write, ${formatBytes(moment.nbytes)} more`,
    released: "let go",
  }[moment.kind];
  const version = moment.version === null ? "" : ` at v${moment.version}`;
  const place = formatPlace(moment.filename, moment.lineno);
  return [`${words}${version}`, formatDuration(moment.time_ns), place].filter(Boolean).join(" · ");
}

/**
 * @param {CanvasRenderingContext2D} ctx
 * @param {number} x
 * @param {number} y
 * @param {number} radius
 * @param {string} fill
 * @param {string} [stroke]
 */
function paintDot(ctx, x, y, radius, fill, stroke) {
  ctx.fillStyle = fill;
  ctx.beginPath();
  ctx.arc(x, y, radius, 0, 2 * Math.PI);
  ctx.fill();
  if (!stroke) return;
  ctx.lineWidth = 1.4;
  ctx.strokeStyle = stroke;
  ctx.stroke();
}

/**
 * @param {Pen} pen
 * @param {string} text
 * @param {number} x
 * @param {number} middle
 * @param {string} hue
 * @returns {number} where it ends
 */
function paintVersion(pen, text, x, middle, hue) {
  const { ctx, palette } = pen;
  const width = widthOf(pen, text, 9.5, 600) + 8;
  ctx.fillStyle = palette.surface;
  roundRect(ctx, x, middle - 7, width, 14, 3);
  ctx.fill();
  ctx.lineWidth = 1;
  ctx.strokeStyle = mix(hue, palette.surface, 0.6);
  ctx.stroke();
  write(pen, text, x + 4, middle, { size: 9.5, weight: 600, color: hue });
  return x + width;
}

/**
 * Above a broken line: who wrote it, and what backward expected; as much as there is room for.
 *
 * @param {Pen} pen
 * @param {import("../../types.js").SceneStorage} storage
 * @param {SceneMoment} written
 * @param {[from: number, to: number]} room until the next glyph
 * @param {number} middle
 */
export function paintBreak(pen, storage, written, [from, to], middle) {
  const { version, seen_version: seen } = storage;
  const who = `${written.op} ${formatPlace(written.filename, written.lineno)}`.trim();
  const expected = seen === null ? "" : `expected v${version}, found v${seen}`;
  const wordings = [[who, expected].filter(Boolean).join(" · "), who, expected];
  const words = wordings.find((each) => widthOf(pen, each, 9.5, 600) < to - from - 6);
  if (words) {
    const style = { size: 9.5, weight: 600, color: pen.palette.mutation };
    write(pen, words, from + 2, middle - 7.5, style);
  }
}
