// @ts-check
/** Formats numbers and names for display. */

/**
 * Bytes in decimal units: `48 B`, `16 kB`, `3.1 MB`.
 *
 * @param {number} nbytes
 * @returns {string}
 */
export function formatBytes(nbytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = nbytes;
  let unit = 0;
  for (; value >= 999.5 && unit < units.length - 1; unit++) value /= 1000;
  return `${value.toFixed(value < 9.95 && unit > 0 ? 1 : 0)} ${units[unit]}`;
}

/**
 * A duration from nanoseconds with three digits, or a whole number: `4.10 ms`, `10 ms`.
 *
 * @param {number} ns
 * @param {number} [places] after the point
 * @returns {string}
 */
export function formatDuration(ns, places) {
  if (ns < 1e3) return `${Math.round(ns)} ns`;
  const [value, unit] = ns < 1e6 ? [ns / 1e3, "µs"] : ns < 1e9 ? [ns / 1e6, "ms"] : [ns / 1e9, "s"];
  const usual = Number.isInteger(value) ? 0 : value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return `${value.toFixed(places ?? usual)} ${unit}`;
}

/**
 * Times with as many places as tell them apart, and one more if they are rounded: equal steps
 * differ by equal amounts in the texts, too. All have the same number: `3.1805 s`, `3.1810 s`.
 *
 * @param {number[]} times
 * @returns {string[]}
 */
export function formatTimes(times) {
  const textsWith = (/** @type {number} */ places) => times.map((ns) => formatDuration(ns, places));
  const count = new Set(times).size;
  const isApart = (/** @type {number} */ places) => new Set(textsWith(places)).size === count;
  const isExact = (/** @type {number} */ places) =>
    textsWith(places).every((text, at) => parseFloat(text) === parseFloat(textsWith(9)[at]));
  let places = 0;
  while (places < 9 && !(isApart(places) && (isExact(places) || (places && isApart(places - 1)))))
    places++;
  return textsWith(places);
}

const counts = new Intl.NumberFormat("en-US");

/**
 * A count with thousands separators: `2,914`.
 *
 * @param {number} count
 * @returns {string}
 */
export function formatCount(count) {
  return counts.format(count);
}

/**
 * A count with its noun: `1 node`, `2 nodes`.
 *
 * @param {number} count
 * @param {string} noun
 * @returns {string}
 */
export function plural(count, noun) {
  return `${formatCount(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/**
 * State how many of something are shown: `largest 4,000 of 53,800`; empty if all are.
 *
 * @param {number} shown
 * @param {number} all
 * @param {string} [which]
 * @returns {string}
 */
export function cutText(shown, all, which = "largest") {
  return shown < all ? `${which} ${formatCount(shown)} of ${formatCount(all)}` : "";
}

/**
 * A file's name with the line: `gpt.py:53`; empty if the file is unknown.
 *
 * @param {string} filename
 * @param {number} lineno 0 if unknown
 * @returns {string}
 */
export function formatPlace(filename, lineno) {
  if (!filename) return "";
  const short = filename.split(/[\\/]/).pop() ?? filename;
  return lineno ? `${short}:${lineno}` : short;
}

/**
 * A gradient norm, or a loss, with three digits: `0.0123`, `-4.56`, `1.20e-5`.
 *
 * @param {number} norm
 * @returns {string}
 */
export function formatNorm(norm) {
  return norm && Math.abs(norm) < 1e-3 ? norm.toExponential(2) : norm.toPrecision(3);
}

/**
 * Return the part of a module path that names a block: up to the first number, or else the first
 * part.
 *
 * @param {string} path
 * @returns {string} "h.3" of "h.3.attn.c_proj"
 */
export function blockPrefix(path) {
  const parts = path.split(".");
  const numbered = parts.findIndex((part) => /^\d+$/.test(part));
  return parts.slice(0, numbered < 0 ? 1 : numbered + 1).join(".");
}

/**
 * Return the parts of a saved tensor's badge; the version is painted in bold.
 *
 * @param {import("../types.js").SavedTensorBadge} badge
 * @returns {{slot: string, version: string, bytes: string}}
 */
export function savedTensorLabel(badge) {
  const saved = badge.version === null ? "" : `v${badge.version}`;
  const broken =
    ["broken", "stale"].includes(badge.state) &&
    badge.seen_version !== null &&
    badge.seen_version !== badge.version;
  return {
    slot: badge.slot,
    version: broken ? `${saved} → v${badge.seen_version}` : saved,
    bytes: formatBytes(badge.nbytes),
  };
}

/**
 * Return a shape, marked if it is a view of a larger storage.
 *
 * @param {{shape: string, dtype: string, nbytes: number}} tensor with the bytes of its storage
 * @returns {string} "4×64 view"
 */
export function formatShape({ shape, dtype, nbytes }) {
  const bits = Number(/\d+/.exec(dtype)?.[0] ?? 8);
  const count = shape.split("×").reduce((product, size) => product * Number(size || 1), 1);
  return shape && (count * bits) / 8 < nbytes / 2 ? `${shape} view` : shape;
}

/**
 * Return the name of several things in a row. Only numbers have a range: of other names, those in
 * between are unknown.
 *
 * @param {string} first
 * @param {string} last
 * @returns {string} "h.0–10.attn", "h.0–2 out", "layer1.0 … layer3.1"
 */
export function nameRange(first, last) {
  if (first === last) return first;
  const [a, b] = [first, last].map((name) => name.split(/(?<=^|\.)(\d+)(?=$|[. ])/));
  const apart = [...a.keys()].filter((at) => a[at] !== b[at]);
  const isRange = apart.length === 1 && a.length === b.length && apart[0] % 2;
  if (!isRange) return `${first} … ${last}`;
  return a.map((part, at) => (part === b[at] ? part : `${part}–${b[at]}`)).join("");
}

/**
 * @param {string} text
 * @returns {string} the same; no line ends between a number and its unit
 */
export const unbroken = (text) =>
  text
    .replace(/(\d) (?=(?:[kMGT]?B|[nµm]?s|%)(?![\w]))/g, "$1\u00a0")
    .replace(/(\d)–(?=\d+.%)/g, "$1\u2060–\u2060")
    .replace("% time", "%\u00a0time");

/**
 * @param {(string | false | null | undefined | number)[]} parts
 * @returns {string} those that say something, with dots between them
 */
export const dotted = (parts) => parts.filter(Boolean).join(" · ");

/**
 * @param {{filename: string, lineno: number}} place
 * @returns {string} "gpt.py:53"
 */
export const placeOf = ({ filename, lineno }) => formatPlace(filename, lineno);

/** @param {string} text */
export const capitalized = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/**
 * @param {string} path
 * @returns {string} "h.*.attn" of "h.3.attn"
 */
export const mergeNumbers = (path) => path.replace(/(^|\.)\d+(?=\.|$| )/g, "$1*");

/**
 * @param {import("../types.js").Scene} scene
 * @param {string} module
 * @returns {string} its name in the model, which has the same one as an attribute or by its class
 */
export function inModel({ summary: { root } }, module) {
  if (module === root) return "";
  return root && module.startsWith(`${root}.`) ? module.slice(root.length + 1) : module;
}
