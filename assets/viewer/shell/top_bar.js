// @ts-check
/** The top bar: title, figures, search, coloring, export and help. */

import { COLORS } from "../scene/graph_colorings.js";
import { copyText } from "../copy_button.js";
import { claim, button, h, listen } from "../dom.js";
import { COST_DEFINITIONS } from "../scene/source_line_costs.js";
import { DEFINITIONS } from "../scene/sum_and_describe_saved_bytes.js";
import { icon } from "../canvas/glyph_shapes.js";
import { FILTERS } from "./search_filters.js";
import { Legend } from "../views/graph/legend.js";
import { ROW_MEANINGS } from "../views/timeline/tracks_and_bars.js";
import { figuresOf, makeStepSwitch } from "./step_chooser.js";

/** @typedef {import("../shared_view_state.js").Store} Store */
/** @typedef {(kind: "svg" | "png") => void} ExportPicture saves the view on display */

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
 * @param {HTMLElement} search
 * @param {ExportPicture} exportPicture
 * @param {() => string} linkText returns what "copy link" copies
 * @param {() => import("../canvas/theme.js").Palette} palette
 * @returns {HTMLElement}
 */
export function makeTopBar(views, store, search, exportPicture, linkText, palette) {
  const { summary } = store.scene;
  const figures = h("div", "agv-figures");
  const fill = () =>
    figures.replaceChildren(
      ...figuresOf(store).map(([strong, rest]) => h("span", {}, h("b", "", strong), rest)),
    );
  store.subscribe(["step"], fill);
  fill();
  return h(
    "header",
    "agv-top-bar",
    h(
      "div",
      "agv-title",
      icon("logo", "agv-icon-16"),
      h("h2", { text: summary.title || "autogradviz", title: summary.subtitle }),
    ),
    figures,
    makeStepSwitch(store),
    h("div", "agv-grow"),
    search,
    colorMenu(store),
    exportMenu(exportPicture, linkText),
    keyHelp(views, store, palette),
  );
}

/**
 * @param {Store} store
 * @returns {HTMLElement}
 */
function colorMenu(store) {
  const isCompared = store.scene.comparison_rows.length > 0;
  const names = COLORS.filter((name) => name !== "change" || isCompared);
  const options = names.map((name) => h("option", { text: name, attrs: { value: name } }));
  const select = h("select", { attrs: { "aria-label": "Color nodes by" } }, ...options);
  listen(select, "change", () =>
    store.set(
      "colorBy",
      /** @type {import("../scene/graph_colorings.js").ColorBy} */ (select.value),
    ),
  );
  store.subscribe(["colorBy"], () => (select.value = store.colorBy));
  return h("label", "agv-menu", h("span", "", "Color"), select);
}

/**
 * @param {ExportPicture} exportPicture
 * @param {() => string} linkText
 * @returns {HTMLElement}
 */
function exportMenu(exportPicture, linkText) {
  const entry = (/** @type {"svg" | "png"} */ kind) => {
    const save = () => {
      menu.open = false;
      exportPicture(kind);
    };
    return button(`Save this view as ${kind.toUpperCase()}`, "agv-item", save, kind.toUpperCase());
  };
  const summary = h(
    "summary",
    { title: "Export this view", attrs: { "aria-label": "Export this view" } },
    icon("export", "agv-icon-16"),
  );
  const copy = () => {
    menu.open = false;
    copyText(linkText());
  };
  const link = button("Copy a link to what is on display", "agv-item", copy, "Link");
  const list = h("div", "agv-export agv-float", entry("svg"), entry("png"), link);
  const menu = h("details", "agv-help", summary, list);
  listen(menu, "focusout", (event) => {
    if (!menu.contains(/** @type {Node | null} */ (event.relatedTarget))) menu.open = false;
  });
  return menu;
}

/**
 * @param {import("../views/registry.js").View[]} views
 * @param {Store} store
 * @param {() => import("../canvas/theme.js").Palette} palette
 * @returns {HTMLElement}
 */
function keyHelp(views, store, palette) {
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
