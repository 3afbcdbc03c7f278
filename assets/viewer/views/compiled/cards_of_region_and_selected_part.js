// @ts-check
/** Cards: why values of a region are saved, and what the selected part stands for. */

import { h, section } from "../../dom.js";
import { formatBytes, dotted, placeOf } from "../../scene/format_numbers_and_names.js";
import { swatch } from "./region_as_svg.js";

/** @typedef {import("../../shared_view_state.js").Store} Store */

const MOST = 60;

/**
 * @param {Store} store
 * @param {import("../../types.js").SceneCompiledRegion} region
 * @returns {HTMLElement[]}
 */
export function regionCard(store, region) {
  const slots = store.scene.compiled_slots.flatMap((slot, at) =>
    slot.region === region.index ? [at] : [],
  );
  const cards = [saved(store, slots)];
  if (region.guards.length) {
    const text = region.guards.join("\n");
    cards.unshift(section("Compiled again", "", h("pre", "agv-text agv-mono agv-guards", text)));
  }
  if (region.notes.length) {
    const lines = region.notes.map((text) => h("p", "agv-text", text));
    cards.unshift(section("Region", "", ...lines));
  }
  return cards;
}

/**
 * @param {Store} store
 * @param {import("../../types.js").SceneCompiledItem} item
 * @returns {HTMLElement[]}
 */
export function itemCard(store, item) {
  const place = item.lineno ? placeOf(item) : "";
  const lines = item.lines.map((text) => h("p", "agv-text agv-mono", text));
  const parts = [section(item.title, place, h("p", "agv-text agv-muted", item.subtitle), ...lines)];
  if (item.slots.length) parts.push(saved(store, item.slots));
  return parts;
}

/**
 * Return the saved values, the computed and largest first, with the sentence that says why each is saved. Values
 * of the same line that are saved for the same reason are listed once.
 *
 * @param {Store} store
 * @param {number[]} indices
 * @returns {HTMLElement}
 */
function saved({ scene }, indices) {
  const slots = indices.map((index) => scene.compiled_slots[index]);
  /** @type {Map<string, import("../../types.js").SceneCompiledSlot[]>} */
  const alike = new Map();
  for (const slot of slots) {
    const key = [slot.filename, slot.lineno, slot.description, slot.reason, slot.hook].join("\n");
    alike.set(key, [...(alike.get(key) ?? []), slot]);
  }
  const sum = (/** @type {{nbytes: number}[]} */ rows) =>
    rows.reduce((total, { nbytes }) => total + nbytes, 0);
  // Inputs and parameters exist anyway: what the region adds comes first.
  const kinds = ["value", "input", "size"];
  const groups = [...alike.values()].sort(
    (a, b) => kinds.indexOf(a[0].kind) - kinds.indexOf(b[0].kind) || sum(b) - sum(a),
  );
  /** @type {HTMLElement[]} */
  const rows = groups.slice(0, MOST).map((group) => {
    const [slot] = group;
    const more = group.length > 1 ? ` and ${group.length - 1} like it` : "";
    const place = slot.lineno ? placeOf(slot) : "";
    const { name = slot.name } = scene.storages[slot.storage] ?? {};
    return h(
      "div",
      "agv-slot",
      h(
        "div",
        "agv-title-line",
        swatch(slot.kind),
        h("span", "agv-grow", h("b", "", name), more),
        h("span", "", slot.kind === "size" ? "" : formatBytes(sum(group))),
      ),
      h(
        "p",
        "agv-muted agv-mono",
        dotted([place, slot.description, name === slot.name ? "" : slot.name]),
      ),
      h("p", "agv-text", slot.reason),
      ...[slot.hook, slot.remedy].map((text) => text && h("p", "agv-text agv-muted", text)),
    );
  });
  if (groups.length > MOST) {
    rows.push(h("p", "agv-muted", `and ${groups.length - MOST} smaller ones`));
  }
  const inputs = slots.filter(({ kind }) => kind === "input");
  const own = sum(slots) - sum(inputs);
  const parts = [own && formatBytes(own), sum(inputs) && `${formatBytes(sum(inputs))} of inputs`];
  const total = parts.filter(Boolean).join(" + ");
  return section("Why it is saved", total, ...rows);
}
