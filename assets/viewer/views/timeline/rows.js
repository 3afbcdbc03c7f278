// @ts-check
/** The timeline's rows: what ran, sorted by what it was and how it was nested. */

import { blockOf } from "../../canvas/charts.js";
import { formatPlace, plural } from "../../scene/format.js";

/** @typedef {import("../../types.js").SceneSpan} SceneSpan */

/**
 * @typedef {object} Bar
 * @property {string} label
 * @property {number} start
 * @property {number} end
 * @property {number} row within its track
 * @property {string} kind as spans have it, "accumulate" besides
 * @property {number} ref a node's index or a region's, -1
 * @property {string} place the line that began it
 * @property {boolean} [faint] a part of the bar above it
 */

/**
 * @typedef {object} Track
 * @property {string} name
 * @property {string} note
 * @property {number} rows
 * @property {Bar[]} bars by start
 */

const MODULE_ROWS = 2;

/**
 * @param {import("../../scene/scene_index.js").Atlas} atlas
 * @returns {Track[]} those that hold something
 */
export function tracksOf(atlas) {
  const { spans, regions } = atlas.scene;
  const of = (/** @type {string} */ kind) => spans.filter((span) => span.kind === kind);
  const again = of("recompute");
  const inAgain = withinAny(again);
  const backwards = of("backward");
  const nodes = of("node");
  const accumulate = nodes.filter((span) => span.label.endsWith("AccumulateGrad"));
  const outer = backwards.filter((span) => !span.depth);
  const inner = backwards.filter((span) => span.depth);
  const modules = of("module").filter((span) => !inAgain(span));
  const ran = new Set(again.map((span) => span.ref)).size;
  const tracks = [
    track("forward", "", [...of("forward").map(plain), ...moduleBars(modules)]),
    track("optimizer", "", of("optimizer").map(plain)),
    track("backward", outer.length > 1 ? `${outer.length} calls` : "", [
      ...outer.map(plain),
      ...blockBars(
        atlas,
        nodes.filter((span) => span.ref >= 0),
      ),
    ]),
    track(
      "nested",
      "backward inside backward",
      inner.map((span) => ({ ...plain(span), row: span.depth - 1 })),
    ),
    track("recompute", ran ? `${ran} of ${regions.length}` : "", again.map(nested)),
    track(
      "accumulate",
      String(accumulate.length),
      accumulate.map((span) => ({ ...plain(span), kind: "accumulate" })),
    ),
    track("hooks", plural(of("hook").length, "run"), of("hook").map(nested)),
    track("switches", "", of("mode").map(nested)),
    track("requires_grad", "", of("toggle").map(plain)),
    track("random", plural(of("random").length, "draw"), of("random").map(plain)),
    track("buffers", plural(of("buffer").length, "write"), of("buffer").map(plain)),
  ];
  return tracks.filter(({ bars }) => bars.length);
}

/**
 * @param {string} name
 * @param {string} note
 * @param {Bar[]} bars
 * @returns {Track}
 */
function track(name, note, bars) {
  bars.sort((a, b) => a.start - b.start || a.row - b.row);
  return { name, note, rows: 1 + bars.reduce((most, bar) => Math.max(most, bar.row), 0), bars };
}

/**
 * @param {SceneSpan} span
 * @returns {Bar}
 */
function plain({ label, start_ns, end_ns, kind, ref, filename, lineno }) {
  const place = formatPlace(filename, lineno);
  return { label, start: start_ns, end: end_ns, row: 0, kind, ref, place };
}

/**
 * @param {SceneSpan} span
 * @returns {Bar}
 */
function nested(span) {
  return { ...plain(span), row: Math.min(span.depth, 2) };
}

/**
 * Modules below the forward's band: the outermost one says no more than the band does.
 *
 * @param {SceneSpan[]} spans
 * @returns {Bar[]}
 */
function moduleBars(spans) {
  const least = spans.some((span) => span.depth > 0) ? 1 : 0;
  return spans
    .filter((span) => span.depth >= least && span.depth < least + MODULE_ROWS)
    .map((span) => ({ ...plain(span), row: span.depth - least + 1, faint: true }));
}

/**
 * Nodes that run one after the other for one block, as one bar; the nodes themselves below it.
 *
 * @param {import("../../scene/scene_index.js").Atlas} atlas
 * @param {SceneSpan[]} spans of nodes
 * @returns {Bar[]}
 */
function blockBars(atlas, spans) {
  /** @type {Bar[]} */
  const blocks = [];
  const sorted = [...spans].sort((a, b) => a.start_ns - b.start_ns);
  for (const span of sorted) {
    const label = blockOf(atlas.scene.nodes[span.ref].module);
    const last = blocks.at(-1);
    if (last && last.label === label) last.end = Math.max(last.end, span.end_ns);
    else blocks.push({ ...plain(span), label, row: 1, ref: -1 });
  }
  const nodes = sorted.map((span) => ({ ...plain(span), row: 2, faint: true }));
  return [...blocks.filter((bar) => bar.label), ...nodes];
}

/**
 * @param {SceneSpan[]} outer
 * @returns {(span: SceneSpan) => boolean} whether a span lies in one of them
 */
function withinAny(outer) {
  const sorted = [...outer].sort((a, b) => a.start_ns - b.start_ns);
  return ({ start_ns, end_ns }) =>
    sorted.some((each) => each.start_ns <= start_ns && end_ns <= each.end_ns);
}
