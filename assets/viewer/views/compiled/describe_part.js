// @ts-check
/** Text and storage of one part of the picture of a compiled region. */

import { formatBytes, formatPlace } from "../../scene/format_numbers_and_names.js";

/** Saved values of one part that are listed; the largest come first. */
const MOST = 4;

/**
 * @param {import("../../types.js").Scene} scene
 * @param {number} part index into compiled_items
 * @returns {string[]} lines; the first one is the title
 */
export function describePart({ compiled_items, compiled_slots }, part) {
  const { title, subtitle, lines, slots, filename, lineno } = compiled_items[part];
  const reasons = slots
    .map((slot) => compiled_slots[slot])
    .sort((a, b) => b.nbytes - a.nbytes)
    .slice(0, MOST)
    .map(({ name, nbytes, reason }) => `${name} · ${formatBytes(nbytes)}: ${reason}`);
  const place = lineno ? formatPlace(filename, lineno) : "";
  return [title, subtitle, title.includes(place) ? "" : place, ...lines, ...reasons].filter(
    Boolean,
  );
}

/**
 * @param {import("../../types.js").Scene} scene
 * @param {number} [part] -1 or undefined without one
 * @returns {import("../../shared_view_state.js").Item | undefined} the storage of a part that is one saved value
 */
export function storageOf({ compiled_items, compiled_slots }, part = -1) {
  const slots = compiled_items[part]?.slots ?? [];
  const storage = slots.length === 1 ? compiled_slots[slots[0]].storage : -1;
  return storage >= 0 ? { kind: "storage", index: storage } : undefined;
}
