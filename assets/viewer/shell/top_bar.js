// @ts-check
/** The top bar: title, figures, step, search, coloring, export and help. */

import { COLORS } from "../scene/graph_colorings.js";
import { copyText } from "../copy_button.js";
import { button, h, listen } from "../dom.js";
import { icon } from "../canvas/draw_icon.js";
import { figuresOf } from "../scene/figures_of_step.js";
import { makeStepSwitch } from "./step_chooser.js";
import { makeHelpMenu } from "./help_menu.js";

/** @typedef {import("../shared_view_state.js").Store} Store */

/** @typedef {(kind: "svg" | "png") => void} ExportPicture saves the view on display */

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
    makeHelpMenu(views, store, palette),
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
