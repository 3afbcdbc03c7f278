// @ts-check
/** What the graph says of an item: beside the pointer, and to a screen reader. */

import { groupsAround } from "../../scene/scene_index.js";
import { placeTooltip, tooltipFor } from "./tooltip.js";

/** @typedef {import("./graph_canvas.js").Graph} Graph */

/**
 * @param {Graph} graph
 * @param {import("../../store.js").Item | null} item
 * @param {number} x
 * @param {number} y
 */
export function showTooltip({ tooltip, store, width, height }, item, x, y) {
  tooltip.hidden = !item;
  if (!item) return;
  tooltip.replaceChildren(...tooltipFor(store.atlas, item));
  placeTooltip(tooltip, x, y, width, height);
}

/**
 * Say what is selected.
 *
 * @param {Graph} graph
 */
export function announce({ announcer, store }) {
  const { selected, atlas, open } = store;
  const words = selected ? tooltipFor(atlas, selected).map((line) => line.textContent) : [];
  if (selected?.kind === "group") {
    const around = groupsAround(atlas, selected.index).length;
    words.push(open.has(selected.index) ? "open" : "closed", `level ${around + 1}`);
  }
  announcer.textContent = words.join(", ");
}
