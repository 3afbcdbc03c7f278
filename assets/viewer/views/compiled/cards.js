// @ts-check
/** Cards: why values are saved, and what a part of the picture stands for. */

import { h, section } from "../../dom.js";
import { formatBytes, formatPlace, plural } from "../../scene/format.js";
import { swatch } from "./picture.js";

/** @typedef {import("../../store.js").Store} Store */

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
  if (region.notes.length) {
    const lines = region.notes.map((text) => h("p", { class: "agv-text", text }));
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
  const place = item.lineno ? formatPlace(item.filename, item.lineno) : "";
  const lines = item.lines.map((text) => h("p", { class: "agv-text agv-mono", text }));
  const parts = [
    section(
      item.title,
      place,
      h("p", { class: "agv-text agv-muted", text: item.subtitle }),
      ...lines,
    ),
  ];
  if (item.slots.length) parts.push(saved(store, item.slots));
  return parts;
}

/**
 * Return the saved values, the largest first, with the sentence that says why each is saved.
 *
 * @param {Store} store
 * @param {number[]} indices
 * @returns {HTMLElement}
 */
function saved({ scene }, indices) {
  const slots = indices.map((index) => scene.compiled_slots[index]);
  slots.sort((a, b) => b.nbytes - a.nbytes);
  const total = slots.reduce((sum, slot) => sum + slot.nbytes, 0);
  const rows = slots.slice(0, MOST).map((slot) =>
    h(
      "div",
      { class: "agv-slot" },
      h(
        "div",
        { class: "agv-title-line" },
        swatch(slot.kind),
        h("b", { class: "agv-grow", text: slot.name }),
        h("span", { text: slot.kind === "size" ? "" : formatBytes(slot.nbytes) }),
      ),
      h("p", {
        class: "agv-muted agv-mono",
        text: [slot.lineno ? formatPlace(slot.filename, slot.lineno) : "", slot.description]
          .filter(Boolean)
          .join(" · "),
      }),
      h("p", { class: "agv-text", text: slot.reason }),
      slot.hook !== "" && h("p", { class: "agv-text agv-muted", text: slot.hook }),
    ),
  );
  if (slots.length > MOST) {
    rows.push(h("p", { class: "agv-muted", text: `and ${slots.length - MOST} smaller ones` }));
  }
  return section(
    "Why it is saved",
    `${plural(slots.length, "value")} · ${formatBytes(total)}`,
    ...rows,
  );
}
