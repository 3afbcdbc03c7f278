// @ts-check
/** What stands around the views: the top bar and the rail. */

import { COLOURS } from "../scene/colors.js";
import { button, h } from "../dom.js";
import { formatBytes, formatCount, formatDuration } from "../scene/format.js";
import { icon } from "../canvas/icons.js";

/** @typedef {import("../store.js").Store} Store */
/** @typedef {import("../store.js").ViewName} ViewName */
/** @typedef {(kind: "svg" | "png") => void} Exporting saves the current view */

/** @type {[name: ViewName, label: string][]} */
const VIEWS = [
  ["graph", "Graph"],
  ["timeline", "Timeline"],
  ["tensors", "Tensors"],
  ["checkpoint", "Checkpoint"],
  ["findings", "Findings"],
  ["source", "Source"],
];

const KEYS = [
  ["click", "select"],
  ["double click, Enter", "open or close a group"],
  ["↑ ↓ ← →", "towards inputs, towards loss, siblings"],
  ["wheel, drag", "zoom, pan"],
  ["f", "fit the whole graph"],
  ["p", "path from the loss to the selection"],
  ["/", "search"],
  ["n", "next difference or finding"],
  ["W A S D", "zoom and pan the timeline"],
  ["Esc", "clear search, then path, then selection"],
];

/**
 * @param {Store} store
 * @param {HTMLElement} search
 * @param {Exporting} exporting
 * @returns {HTMLElement}
 */
export function makeTopBar(store, search, exporting) {
  const { summary } = store.scene;
  /** @type {[strong: string, rest: string][]} */
  const figures = [
    [
      formatCount(summary.nodes),
      ` node${summary.nodes === 1 ? "" : "s"} · ${formatCount(summary.edges)} edges`,
    ],
    [formatBytes(summary.peak_nbytes), " saved at peak"],
    [formatDuration(summary.end_ns), ""],
  ];
  return h(
    "header",
    { class: "agv-top" },
    h(
      "div",
      { class: "agv-name" },
      icon("logo", "agv-icon-16"),
      h("h2", { text: summary.title || "autogradviz", title: summary.subtitle }),
    ),
    h(
      "div",
      { class: "agv-figures" },
      ...figures.map(([strong, rest]) => h("span", {}, h("b", { text: strong }), rest)),
    ),
    h("div", { class: "agv-grow" }),
    search,
    colourMenu(store),
    exportMenu(exporting),
    keysHelp(),
  );
}

/**
 * @param {Store} store
 * @returns {HTMLElement}
 */
function colourMenu(store) {
  const options = COLOURS.map((name) => h("option", { text: name, attrs: { value: name } }));
  const select = h("select", { attrs: { "aria-label": "Colour nodes by" } }, ...options);
  select.addEventListener("change", () =>
    store.colourBy(/** @type {import("../scene/colors.js").Colour} */ (select.value)),
  );
  store.subscribe((change) => change === "look" && (select.value = store.colour));
  return h("label", { class: "agv-menu" }, h("span", { text: "Colour" }), select);
}

/**
 * @param {Exporting} exporting
 * @returns {HTMLElement}
 */
function exportMenu(exporting) {
  const entry = (/** @type {"svg" | "png"} */ kind) => {
    const save = () => {
      menu.open = false;
      exporting(kind);
    };
    return button(`Save this view as ${kind.toUpperCase()}`, "agv-item", save, kind.toUpperCase());
  };
  const summary = h(
    "summary",
    { title: "Export this view", attrs: { "aria-label": "Export this view" } },
    icon("export", "agv-icon-16"),
  );
  const list = h("div", { class: "agv-export agv-float" }, entry("svg"), entry("png"));
  const menu = h("details", { class: "agv-help" }, summary, list);
  menu.addEventListener("focusout", (event) => {
    if (!menu.contains(/** @type {Node | null} */ (event.relatedTarget))) menu.open = false;
  });
  return menu;
}

/** @returns {HTMLElement} */
function keysHelp() {
  const list = h("dl", { class: "agv-keys agv-float" });
  for (const [keys, words] of KEYS) list.append(h("dt", { text: keys }), h("dd", { text: words }));
  const help = h(
    "details",
    { class: "agv-help" },
    h("summary", { title: "Keys", attrs: { "aria-label": "Keys" } }, icon("help", "agv-icon-16")),
    list,
  );
  help.addEventListener("focusout", () => (help.open = false));
  return help;
}

/**
 * @param {Store} store
 * @returns {HTMLElement}
 */
export function makeRail(store) {
  const counts = { checkpoint: store.scene.regions.length, findings: store.scene.findings.length };
  const rail = h("nav", { class: "agv-rail", attrs: { "aria-label": "Views" } });
  const mark = () => {
    for (const child of rail.children) {
      child.toggleAttribute("aria-current", child.getAttribute("data-view") === store.view);
    }
  };
  for (const [name, label] of VIEWS) {
    const entry = button(label, "agv-view", () => store.show(name), icon(name, "agv-icon-16"));
    entry.dataset.view = name;
    entry.append(h("span", { text: label }));
    const count = name === "findings" ? counts.findings : 0;
    if (count) entry.append(h("span", { class: "agv-badge", text: String(count) }));
    rail.append(entry);
  }
  store.subscribe((change) => change === "view" && mark());
  mark();
  return rail;
}

/**
 * What the recorder has to say about itself, and a torn file.
 *
 * @param {Store} store
 * @returns {HTMLElement | null}
 */
export function makeNotices(store) {
  const { notices } = store.scene.summary;
  if (!notices.length) return null;
  return h(
    "div",
    { class: "agv-notices", attrs: { role: "status" } },
    ...notices.map((text) => h("div", { text })),
  );
}
