// @ts-check
/** State that a checkpointed region reads and that changed between forward and recomputation. */

import { SCROLLS, h, section } from "../../dom.js";
import { formatPlace, plural } from "../../scene/format_numbers_and_names.js";

/**
 * @param {import("../../types.js").SceneChange[]} changes
 * @returns {HTMLElement[]} empty without changes
 */
export function stateChanges(changes) {
  if (!changes.length) return [];
  const head = ["changed", "forward", "recompute"].map((text) => h("th", "", text));
  const rows = changes.flatMap(changeRows);
  const table = h(
    "table",
    "agv-table agv-changes",
    h("thead", {}, h("tr", {}, ...head)),
    h("tbody", {}, ...rows),
  );
  const count = plural(changes.length, "difference");
  const title = "State that changed between forward and recomputation";
  return [section(title, count, h("div", SCROLLS, table))];
}

/**
 * @param {import("../../types.js").SceneChange} change
 * @returns {HTMLElement[]} a row with the change, and one with the line that made it
 */
function changeRows({ name, before, after, by_forward, filename, lineno }) {
  const place = filename && lineno ? formatPlace(filename, lineno) : "";
  const origin = [place, by_forward ? "this region's forward" : ""].filter(Boolean).join(", ");
  const row = h(
    "tr",
    {},
    h("td", "agv-mono agv-mutation agv-strong agv-change-name", `≠\u00a0${name}`),
    h("td", "agv-mono agv-wrap", before),
    h("td", "agv-mono agv-wrap agv-mutation", after),
  );
  const by = { class: "agv-muted", text: `by ${origin}`, title: filename, attrs: { colspan: 3 } };
  return origin ? [row, h("tr", "agv-change-by", h("td", by))] : [row];
}
