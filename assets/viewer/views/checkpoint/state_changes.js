// @ts-check
/** What a checkpointed region could read and found changed when it ran again. */

import { h, section } from "../../dom.js";
import { formatPlace, plural } from "../../scene/format.js";

/**
 * @param {import("../../types.js").SceneChange[]} changes
 * @returns {HTMLElement[]} nothing where nothing changed
 */
export function surroundings(changes) {
  if (!changes.length) return [];
  const head = ["changed", "forward", "recompute"].map((text) => h("th", { text }));
  const rows = changes.flatMap(changeRows);
  const table = h(
    "table",
    { class: "agv-table agv-changes" },
    h("thead", {}, h("tr", {}, ...head)),
    h("tbody", {}, ...rows),
  );
  const words = plural(changes.length, "difference");
  return [section("What surrounded the two runs", words, h("div", { class: "agv-scroll" }, table))];
}

/**
 * @param {import("../../types.js").SceneChange} change
 * @returns {HTMLElement[]} what changed, and below it who did that
 */
function changeRows({ name, before, after, by_forward, filename, lineno }) {
  const place = filename && lineno ? formatPlace(filename, lineno) : "";
  const who = [place, by_forward ? "this region's forward" : ""].filter(Boolean).join(", ");
  const row = h(
    "tr",
    {},
    h("td", { class: "agv-mono agv-mutation agv-strong agv-change-name", text: `≠ ${name}` }),
    h("td", { class: "agv-mono agv-wrap", text: before }),
    h("td", { class: "agv-mono agv-wrap agv-mutation", text: after }),
  );
  const by = { class: "agv-muted", text: `by ${who}`, title: filename, attrs: { colspan: 3 } };
  return who ? [row, h("tr", { class: "agv-change-by" }, h("td", by))] : [row];
}
