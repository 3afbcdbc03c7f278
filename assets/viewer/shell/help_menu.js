// @ts-check
/** The help: legend of the graph, keys, filters of the search, terms, rows of the timeline. */

import { claim, h, listen } from "../dom.js";
import { COST_DEFINITIONS } from "../scene/source_line_costs.js";
import { DEFINITIONS } from "../scene/sum_and_describe_saved_bytes.js";
import { icon } from "../canvas/draw_icon.js";
import { FILTERS } from "./search_filters.js";
import { Legend } from "../views/graph/legend.js";
import { ROW_MEANINGS } from "../views/timeline/tracks_and_bars.js";

/** @typedef {import("../shared_view_state.js").Store} Store */

/** @type {[keys: string, action: string][]} those that work in every view */
const KEYS = [
  ["p", "path from the loss to the selection"],
  ["/", "search, with filters; > lists commands"],
  ["n", "next difference or finding"],
  ["?", "this list"],
  ["Esc", "clear search, then path, then selection"],
];

/**
 * @param {import("../views/registry.js").View[]} views
 * @param {Store} store
 * @param {() => import("../canvas/theme.js").Palette} palette
 * @returns {HTMLElement}
 */
export function makeHelpMenu(views, store, palette) {
  const list = h("dl", "agv-key-help");
  const legend = new Legend(store.scene);
  const entries = [...views.flatMap((view) => view.keyHelp ?? []), ...KEYS];
  for (const [keys, action] of entries) {
    list.append(h("dt", "", keys), h("dd", "", action));
  }
  for (const [title, className, terms] of /** @type {[string, string, string[][]][]} */ ([
    ["Search", "agv-mono", FILTERS],
    ["Bytes and times", "", [...DEFINITIONS, ...COST_DEFINITIONS]],
    ["Rows of the timeline", "", ROW_MEANINGS],
  ])) {
    list.append(h("dt", "agv-help-head", title), h("dd"));
    for (const [term, meaning] of terms)
      list.append(h("dt", className, term), h("dd", "", meaning));
  }
  const help = h(
    "details",
    "agv-help agv-keys",
    h(
      "summary",
      { title: "Legend, keys and terms", attrs: { "aria-label": "Legend, keys and terms" } },
      icon("help", "agv-icon-16"),
    ),
    h(
      "div",
      { class: "agv-help-page agv-float", attrs: { tabindex: 0 } },
      h("h4", "", "Legend of the graph"),
      legend.element,
      h("h4", "", "Keys"),
      list,
    ),
  );
  listen(help, "toggle", () => legend.draw(palette()));
  listen(help, "focusout", (event) => {
    if (!help.contains(/** @type {Node | null} */ (event.relatedTarget))) help.open = false;
  });
  listen(help, "keydown", (event) => {
    if (!help.open || event.key !== "Escape") return;
    claim(event);
    help.open = false;
  });
  return help;
}
