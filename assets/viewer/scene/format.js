// @ts-check
/** Numbers and names as people read them. */

/**
 * Decimal bytes, as the pictures write them: `48 B`, `16 kB`, `3.1 MB`.
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
 * A duration from nanoseconds: `4.1 ms`.
 *
 * @param {number} ns
 * @returns {string}
 */
export function formatDuration(ns) {
  if (ns < 1e3) return `${Math.round(ns)} ns`;
  if (ns < 1e6) return `${figures(ns / 1e3)} µs`;
  if (ns < 1e9) return `${figures(ns / 1e6)} ms`;
  return `${figures(ns / 1e9)} s`;
}

/**
 * @param {number} value
 * @returns {string}
 */
function figures(value) {
  if (Number.isInteger(value) || value >= 99.95) return String(Math.round(value));
  return value.toFixed(value >= 9.995 ? 1 : 2).replace(/\.?0+$/, "");
}

const counts = new Intl.NumberFormat("en-US");

/**
 * A count with thousands apart: `2,914`.
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
 * The last part of a path, with its line: `gpt.py:53`; "" where the file is unknown.
 *
 * @param {string} filename
 * @param {number} lineno 0 where unknown
 * @returns {string}
 */
export function formatPlace(filename, lineno) {
  if (!filename) return "";
  const short = filename.split(/[\\/]/).pop() ?? filename;
  return lineno ? `${short}:${lineno}` : short;
}

/**
 * A chip's words in two parts, so that the version can stand out.
 *
 * @param {import("../types.js").Chip} chip
 * @returns {{slot: string, version: string, bytes: string}}
 */
export function chipWords(chip) {
  const saved = chip.version === null ? "" : `v${chip.version}`;
  const broken = chip.state === "broken" && chip.seen_version !== null;
  return {
    slot: chip.slot,
    version: broken ? `${saved} → v${chip.seen_version}` : saved,
    bytes: formatBytes(chip.nbytes),
  };
}
