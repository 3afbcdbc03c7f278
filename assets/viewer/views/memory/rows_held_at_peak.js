// @ts-check
/** Rows of what saved tensors hold at the peak, as a tree: modules, their source lines, tensors. */

import { kindOfStorage } from "../../scene/saved_kind_colors.js";
import { formatPlace, mergeNumbers, plural } from "../../scene/format_numbers_and_names.js";
import { isHeldAtPeak } from "../../scene/storage_holds.js";

/** @typedef {import("../../types.js").SceneCountedStorage} CountedStorage */

/**
 * @typedef {object} HeldRow
 * @property {"module" | "line" | "tensor" | "older"} kind
 * @property {string} label "h.*" for modules that are added up
 * @property {string} note "×6", or the tensors of a line
 * @property {string} path of the first module
 * @property {string[]} modules that it stands for
 * @property {{label: string, modules: string[]}[]} around modules with only this one in them
 * @property {number} nbytes
 * @property {Map<string, number>} kinds bytes by title of the kind
 * @property {CountedStorage | null} largest
 * @property {number} count of storages
 * @property {HeldRow[]} rows the largest first
 */

/** Numbered modules whose bytes differ by a larger factor are listed one by one. */
const ALIKE = 1.5;

/**
 * Return the rows of what is held at the peak. The bytes of the outermost ones add up to it.
 *
 * @param {import("../../shared_view_state.js").Store} store
 * @returns {HeldRow[]}
 */
export function heldRows({ scene, sceneIndex, step }) {
  const atPeak = isHeldAtPeak(scene, step);
  const root = newRow("module", "", "");
  const called = new Set([...scene.module_calls].map(({ module }) => module));
  for (const storage of scene.counted_storages) {
    if (atPeak(storage)) add(root, storage, sceneIndex, modulesAround(storage.module, called));
  }
  const { older_nbytes: nbytes, older_steps } = scene.summary;
  if (nbytes) {
    const label = `${plural(older_steps, "step")} no longer shown`;
    root.rows.push({ ...newRow("older", label, ""), nbytes });
  }
  return tidy(root).rows;
}

/**
 * @param {HeldRow} root
 * @param {CountedStorage} storage
 * @param {import("../../scene/scene_index.js").SceneIndex} sceneIndex
 * @param {string[]} modules around it, the outermost first
 */
function add(root, storage, { scene, source, storageOf }, modules) {
  const { filename, lineno, storage_id: id, nbytes } = storage;
  const title = kindOfStorage(scene, id);
  const index = storageOf.get(id);
  const { name, slots } = index === undefined ? { name: "", slots: [] } : scene.storages[index];
  let row = root;
  const enter = (
    /** @type {HeldRow["kind"]} */ kind,
    /** @type {string} */ label,
    /** @type {string} */ path,
    /** @type {string} */ note = "",
  ) => {
    let child = row.rows.find(
      (each) => each.kind === kind && each.label === label && each.note === note,
    );
    if (!child) row.rows.push((child = { ...newRow(kind, label, path), note }));
    row = child;
    row.nbytes += nbytes;
    row.count += 1;
    row.kinds.set(title, (row.kinds.get(title) ?? 0) + nbytes);
    if (nbytes > (row.largest?.nbytes ?? -1)) row.largest = storage;
  };
  let path = "";
  for (const module of modules) {
    enter("module", path ? module.slice(path.length + 1) : module, module);
    path = module;
  }
  const place = formatPlace(filename, lineno);
  enter("line", source.get(filename)?.get(lineno)?.trim() || place || "no line", path, place);
  enter("tensor", name || slots[0] || title, path);
}

/**
 * @param {string} module
 * @param {Set<string>} called modules; empty if no call was recorded
 * @returns {string[]} the called modules around and at a path: "h.0" and "h.0.attn", but not "h";
 *   calls inside a compiled region are not recorded, but a list of modules is known by its numbers
 */
function modulesAround(module, called) {
  /** @type {string[]} */
  const paths = [];
  let path = "";
  for (const part of module ? module.split(".") : []) paths.push((path += `${path && "."}${part}`));
  const isCalled = (/** @type {string} */ each, /** @type {number} */ at) =>
    called.has(module) ? called.has(each) : !/\.\d+$/.test(paths[at + 1] ?? "");
  return paths.filter((each, at) => each === module || isCalled(each, at));
}

/**
 * Add up numbered modules that hold about the same, join a row with the only one in it, and sort.
 *
 * @param {HeldRow} row
 * @returns {HeldRow}
 */
function tidy(row) {
  const keyOf = (/** @type {HeldRow} */ { kind, label, note }) =>
    kind === "line"
      ? `${label} ${note}`
      : `${kind} ${kind === "tensor" ? mergeNumbers(label) : label}`;
  const equal = groupBy(row.rows, keyOf).map(addUp);
  const patternOf = (/** @type {HeldRow} */ each) =>
    each.kind === "module" ? `module ${mergeNumbers(each.label)}` : keyOf(each);
  row.rows = groupBy(equal, patternOf).flatMap((rows) => {
    const sizes = rows.map(({ nbytes }) => nbytes);
    return Math.max(...sizes) > ALIKE * Math.min(...sizes) ? rows : [addUp(rows)];
  });
  row.rows = row.rows.map(tidy).sort((a, b) => b.nbytes - a.nbytes);
  const [only] = row.rows;
  if (row.rows.length !== 1) return row;
  if (row.kind === "module" && row.path && only.kind === "module") {
    const { label, modules } = row;
    const inner = only.around.map((each) => ({ ...each, label: `${label}.${each.label}` }));
    return { ...only, label: `${label}.${only.label}`, around: [{ label, modules }, ...inner] };
  }
  if (row.kind === "module" && row.path && only.kind === "line") {
    return { ...row, note: `${timesOf(row)}${only.note || only.label}`, rows: only.rows };
  }
  if (row.kind === "line") {
    const tensor = only.count > 1 ? `${only.label} ×${only.count}` : only.label;
    return { ...row, note: `${row.note} · ${tensor}`, rows: [] };
  }
  return row;
}

/**
 * @template Row
 * @param {Row[]} rows
 * @param {(row: Row) => string | number} keyOf
 * @returns {Row[][]} those with the same key together, in the order of the first ones
 */
export function groupBy(rows, keyOf) {
  /** @type {Map<string | number, Row[]>} */
  const groups = new Map();
  for (const row of rows) {
    const key = keyOf(row);
    const group = groups.get(key) ?? [];
    groups.set(key, group);
    group.push(row);
  }
  return [...groups.values()];
}

/**
 * @param {HeldRow[]} rows
 * @returns {HeldRow} one that stands for all
 */
function addUp(rows) {
  if (rows.length === 1) return rows[0];
  const [first] = rows;
  const same = rows.every(({ label }) => label === first.label);
  const sum = newRow(first.kind, same ? first.label : mergeNumbers(first.label), first.path);
  sum.note = first.note;
  sum.modules = rows.flatMap(({ modules }) => modules);
  for (const row of rows) {
    sum.nbytes += row.nbytes;
    sum.count += row.count;
    if ((row.largest?.nbytes ?? -1) > (sum.largest?.nbytes ?? -1)) sum.largest = row.largest;
    for (const [kind, nbytes] of row.kinds)
      sum.kinds.set(kind, (sum.kinds.get(kind) ?? 0) + nbytes);
    sum.rows.push(...row.rows);
  }
  return sum;
}

/** @param {HeldRow} row */
const timesOf = ({ modules }) => (modules.length > 1 ? `×${modules.length} ` : "");

/**
 * @param {HeldRow["kind"]} kind
 * @param {string} label
 * @param {string} path
 * @returns {HeldRow}
 */
function newRow(kind, label, path) {
  const modules = kind === "module" && path ? [path] : [];
  return {
    kind,
    label,
    note: "",
    path,
    modules,
    around: [],
    nbytes: 0,
    kinds: new Map(),
    largest: null,
    count: 0,
    rows: [],
  };
}
