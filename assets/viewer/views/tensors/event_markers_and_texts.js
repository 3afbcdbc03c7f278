// @ts-check
/** The events of a storage, as markers on its lifeline and as text. */

import { stepAt } from "../../scene/step_of_time_or_node.js";
import { fillBox, setStroke } from "../../canvas/shapes.js";
import { paintGlyph } from "../../canvas/draw_icon.js";
import { roundRect, widthOf, write } from "../../canvas/text_fitted_to_width.js";
import { mix } from "../../canvas/theme.js";
import {
  formatBytes,
  formatDuration,
  dotted,
  placeOf,
} from "../../scene/format_numbers_and_names.js";

/** @typedef {import("../../canvas/text_fitted_to_width.js").Pen} Pen */
/** @typedef {import("../../types.js").SceneStorageEvent} SceneStorageEvent */
/**
 * An event that is marked, or a release with the last use, which is too close to it for two marks.
 *
 * @typedef {Pick<SceneStorageEvent, "storage" | "time_ns" | "version" | "op" | "ok"> & {kind: SceneStorageEvent["kind"] | "used"}} Mark
 */

/** Radius of the mark of a use and a release. */
const USED = 7;
/** A use that is closer to the release has one mark with it. */
const NEAR = 14;

/**
 * Return the marks of a row. A release of what was used says so, as the use may be too close to it
 * for a mark of its own. Of releases that would overlap, the last one is marked.
 *
 * @param {SceneStorageEvent[]} marked events of a row by time
 * @param {SceneStorageEvent[]} all its events, those without a mark as well
 * @param {(time: number) => number} x
 * @returns {Mark[]}
 */
export function joinUses(marked, all, x) {
  let next = Infinity;
  return marked.reduceRight((/** @type {Mark[]} */ marks, each) => {
    const { kind, storage, time_ns, version, op, ok } = each;
    const own = x(time_ns);
    const isRelease = kind === "released";
    if (next - own < (isRelease ? 2 * USED : kind === "unpacked" && ok ? NEAR : 0)) return marks;
    if (isRelease) next = own;
    const last = all.findLast(
      (other) =>
        other.storage === storage &&
        other.time_ns <= time_ns &&
        /^(unpack|save|recomp)/.test(other.kind),
    );
    const isUsed = isRelease && last?.kind === "unpacked" && last.ok;
    return [isUsed ? { kind: "used", storage, time_ns, version, op, ok } : each, ...marks];
  }, []);
}

/**
 * Paint the marker of an event, next to the marker before it where they would overlap. Saves,
 * clones and successful unpacks without room are left out.
 *
 * @param {Pen} pen
 * @param {Mark} event
 * @param {number} x
 * @param {number} middle y of the lifeline
 * @param {string} hue
 * @param {number} free x from which nothing is painted yet
 * @param {{movable: boolean, version: string}} about whether it may be moved, and the version to
 *   write beside it
 * @returns {number} the same, after this marker
 */
export function paintEventMarker(pen, event, x, middle, hue, free, { movable, version }) {
  const { ctx, palette } = pen;
  const failed = event.kind === "unpacked" && !event.ok;
  if (x < free && !movable) return free;
  const next = Math.max(x, free + 2);
  switch (event.kind) {
    case "saved":
    case "recomputed": {
      fillBox(ctx, hue, next - 2, middle - 7, 4, 14);
      if (!version) return next + 6;
      return paintVersion(pen, version, next + 5, middle, hue) + 4;
    }
    case "written": {
      const at = next + 6;
      paintDot(ctx, at, middle, 8, palette.surface);
      const color = event.ok ? palette.text2 : palette.mutation;
      paintGlyph(ctx, "pencil", at, middle, 13, color);
      if (!version) return at + 9;
      return paintVersion(pen, version, at + 8, middle, color) + 4;
    }
    case "unpacked":
      if (failed) {
        const at = Math.max(x, free + 8);
        paintGlyph(ctx, "failed", at, middle, 16, palette.mutation, palette.surface);
        return at + 8;
      }
      paintDot(ctx, next, middle, 7, palette.surface);
      paintGlyph(ctx, "check", next, middle, 13, palette.saved);
      return next + 8;
    case "cloned":
      paintDot(ctx, next, middle, 8, palette.surface);
      paintGlyph(ctx, "clone", next, middle, 13, palette.recompute);
      return next + 9;
    case "used": {
      const at = Math.min(Math.max(x, free + 3), x + NEAR);
      paintDot(ctx, at, middle, USED, palette.surface);
      paintGlyph(ctx, "used", at, middle, 15, palette.saved);
      return Math.max(free, at + 8);
    }
    default: {
      // Below the marks that are at its time.
      paintDot(ctx, x, x < free + 4 ? middle + 8 : middle, 3.6, palette.surface, palette.text2);
      return Math.max(free, x + 4);
    }
  }
}

/**
 * Return the event, its time and its line.
 *
 * @param {SceneStorageEvent} event
 * @param {import("../../types.js").Scene} scene
 * @returns {string} "written by mul_ at v1 · 5.2 ms of step 2 · train.py:41"
 */
export function describeEvent(event, scene) {
  const verb = {
    saved: "saved",
    recomputed: "saved again by recomputation",
    written: `written${event.op ? ` by ${event.op}` : ""}`,
    unpacked: unpackText(event),
    cloned: `cloned before a write, ${formatBytes(event.nbytes)} more`,
    released: "released",
  }[event.kind];
  const what = event.version === null ? verb : `${verb} at v${event.version}`;
  const place = placeOf(event);
  const step = scene.steps[stepAt(scene, event.time_ns)];
  const time = formatDuration(event.time_ns - (step?.start_ns ?? 0));
  return dotted([what, step && scene.steps[1] ? `${time} of step ${step.number}` : time, place]);
}

/**
 * @param {SceneStorageEvent} event
 * @returns {string}
 */
function unpackText({ ok, op, version }) {
  if (ok) return "used by backward";
  if (op && version === null) return `use failed: ${op}`;
  return version === null ? "use failed" : "found changed by backward";
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
  setStroke(ctx, stroke, 1.4);
  ctx.stroke();
}

/**
 * @param {Pen} pen
 * @param {string} text
 * @param {number} x
 * @param {number} middle
 * @param {string} hue
 * @returns {number} x of its right end
 */
function paintVersion(pen, text, x, middle, hue) {
  const { ctx, palette } = pen;
  const width = widthOf(pen, text, 9.5, 600) + 8;
  ctx.fillStyle = palette.surface;
  roundRect(ctx, x, middle - 7, width, 14, 3);
  ctx.fill();
  setStroke(ctx, mix(hue, palette.surface, 0.6), 1);
  ctx.stroke();
  write(pen, text, x + 4, middle, { size: 9.5, weight: 600, color: hue });
  return x + width;
}

/**
 * Label a broken lifeline with the writes after its save, the first one first as in findings, and
 * with the versions that backward compared; shorter where there is less room.
 *
 * @param {Pen} pen
 * @param {import("../../types.js").SceneStorage} storage
 * @param {SceneStorageEvent[]} writes oldest first
 * @param {[from: number, to: number]} room between two markers
 * @param {number} middle
 */
export function paintVersionMismatch(pen, storage, writes, [from, to], middle) {
  const forms = mismatchTexts(storage, writes);
  const text = forms.find((form) => widthOf(pen, form, 9.5, 600) + 8 < to - from - 6);
  if (text) paintVersion(pen, text, from + 4, middle, pen.palette.mutation);
}

/**
 * @param {import("../../types.js").SceneStorage} storage
 * @param {SceneStorageEvent[]} writes oldest first
 * @returns {string[]} the longest first: "sub_ net.py:63 (v1), div_ :64 (v2) · expected v0, found v2"
 */
export function mismatchTexts({ version, seen_version: seen }, writes) {
  const versions = seen === null ? "" : `expected v${version}, found v${seen}`;
  const [first, ...others] = writes;
  const describe = (/** @type {SceneStorageEvent} */ write) => {
    const isSame = write !== first && write.filename === first.filename && write.lineno > 0;
    const place = isSame ? `:${write.lineno}` : placeOf(write);
    const after = others.length && write.version !== null ? `(v${write.version})` : "";
    return [write.op, place, after].filter(Boolean).join(" ");
  };
  const all = writes.map(describe).join(", ");
  const short = describe(first) + (others.length ? `, ${others.length} more` : "");
  const join = (/** @type {string} */ text) => dotted([text, versions]);
  return [join(all), join(short), short, versions].filter(Boolean);
}
