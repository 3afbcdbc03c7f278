// @ts-check
/** What a checkpointed region could read and found changed when it ran again. */

import { h, section } from "./dom.js";
import { formatPlace, plural } from "./format.js";

/**
 * @param {import("./types.js").SceneChange[]} changes
 * @returns {HTMLElement[]} nothing where nothing changed
 */
export function surroundings(changes) {
  if (!changes.length) return [];
  const head = ["changed", "forward", "recompute", "written by"].map((text) => h("th", { text }));
  const rows = changes.map(({ name, before, after, by_forward, filename, lineno }) => {
    const place = filename && lineno ? formatPlace(filename, lineno) : "";
    const who = [place, by_forward ? "this region's forward" : ""].filter(Boolean).join(", ");
    return h(
      "tr",
      {},
      h("td", { class: "agv-mono agv-mutation agv-strong", text: `≠ ${name}` }),
      h("td", { class: "agv-mono agv-wrap", text: before }),
      h("td", { class: "agv-mono agv-wrap agv-mutation", text: after }),
      h("td", { text: who, title: filename }),
    );
  });
  const table = h(
    "table",
    { class: "agv-table" },
    h("thead", {}, h("tr", {}, ...head)),
    h("tbody", {}, ...rows),
  );
  const words = plural(changes.length, "difference");
  return [section("What surrounded the two runs", words, h("div", { class: "agv-scroll" }, table))];
}
