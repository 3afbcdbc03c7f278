// @ts-check
/** The times of modules as a tree: those of a module contain those of the modules in it. */

import { nameRange } from "./format_numbers_and_names.js";

/** @typedef {import("./range_profile.js").ProfileRow} ProfileRow */

/**
 * @typedef {object} ModuleTimes
 * @property {string} path of the module, or the label of what has none
 * @property {ProfileRow | null} own row, null for a list of modules
 * @property {ProfileRow} sum of its row and those of all modules in it
 * @property {ModuleTimes[]} parts modules in it, the longest first
 */

/**
 * @param {ProfileRow[]} rows of the profile by module, and of what is in no module
 * @returns {ModuleTimes[]} the longest first
 */
export function moduleTimes(rows) {
  /** @type {ModuleTimes[]} */
  const roots = [];
  /** @type {Map<string, ModuleTimes>} */
  const known = new Map();
  /**
   * @param {string} path
   * @param {ProfileRow} row
   * @returns {ModuleTimes} the module, with the row added to it and to all around it
   */
  const add = (path, row) => {
    /** @type {ProfileRow} */
    const sum = { ...row, parts: {}, modules: new Set([path]), count: 0, time: 0 };
    const found = known.get(path) ?? { path, own: null, sum, parts: [] };
    const end = path.lastIndexOf(".");
    const around = end < 0 ? roots : add(path.slice(0, end), row).parts;
    if (!known.has(path)) around.push(found);
    known.set(path, found);
    found.sum.count += row.count;
    found.sum.time += row.time;
    for (const [phase, ns] of Object.entries(row.parts)) {
      found.sum.parts[phase] = (found.sum.parts[phase] ?? 0) + ns;
    }
    return found;
  };
  for (const row of rows) {
    const [path] = row.modules;
    if (path) add(path, row).own = row;
    else roots.push({ path: row.label, own: row, sum: row, parts: [] });
  }
  const sort = (/** @type {ModuleTimes[]} */ some) => {
    some.sort((a, b) => b.sum.time - a.sum.time);
    for (const { parts } of some) sort(parts);
  };
  sort(roots);
  return roots;
}

/**
 * @param {ModuleTimes} module
 * @param {string} around path of the module that it is in, "" for none
 * @returns {string} "attn" in its module, "h.0–5" of a list of modules
 */
export function nameOfModules({ path, own, parts }, around) {
  const numbers = parts.map((part) => Number(part.path.slice(path.length + 1)));
  const name = path.slice(around ? around.length + 1 : 0);
  const short = /^\d/.test(name) ? `${around.slice(around.lastIndexOf(".") + 1)}.${name}` : name;
  if (own || parts.length < 2 || numbers.some(Number.isNaN)) return short;
  return nameRange(`${short}.${Math.min(...numbers)}`, `${short}.${Math.max(...numbers)}`);
}
