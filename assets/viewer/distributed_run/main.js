// @ts-check
/** The viewer of runs: mounts the page of a run in an element of a notebook or of a report. */

import "../style/source_excerpt.css";
import "./run.css";
import { COMPARE, FIT, MINUS, PLUS } from "../canvas/icon_paths.js";
import { glyphElement } from "../canvas/draw_icon.js";
import { PALETTES, hostTheme, watchTheme } from "../canvas/theme.js";
import { button, h, listen } from "../dom.js";
import { formatCount, plural } from "../scene/format_numbers_and_names.js";
import { MODES, formatValue, isNorm, scale } from "./heat_map_as_pixels.js";
import { makeCollectiveLanes } from "./collective_lanes.js";
import { decodeRun } from "./decode_run.js";
import { HeatRows } from "./heat_map.js";
import { makeOpDifference } from "./rank_op_difference.js";
import { RunState } from "./selected_rank_and_coloring.js";
import { makeSidePanel } from "./rank_and_findings_panel.js";
import { makeOwnViews } from "./open_views_of_one_rank.js";
import { bottomTabs, firstTab, makeTabs } from "./collective_and_op_tabs.js";

/** @typedef {import("./types.js").RunScene} RunScene */
/** @typedef {import("./selected_rank_and_coloring.js").Mode} Mode */

const MOST_GROUPS = 12;

/**
 * @typedef {import("../sync_selection_with_python.js").HostModel & {ranks?: Map<number, () => Uint8Array>}} RunModel
 *   a report has the scenes of some ranks, a notebook asks the kernel for one
 */

/**
 * Mount the viewer; it draws as soon as the payload is decoded.
 *
 * @param {{model: RunModel, el: HTMLElement}} host
 * @returns {() => void} removes the viewer
 */
function render({ model, el }) {
  const attrs = { "data-lm-suppress-shortcuts": "true" };
  const root = h("div", { class: "agv agv-run", attrs });
  el.append(root);
  root.dataset.theme = hostTheme();
  root.style.setProperty("--agv-height", `${model.get("height")}px`);
  let unmount = () => {};
  let removed = false;
  decodeRun(model.get("_run"))
    .then((scene) => {
      if (!removed) unmount = mountRun(root, scene, model);
    })
    .catch((error) => {
      root.replaceChildren(h("p", "agv-empty", `autogradviz: ${error}`));
    });
  return () => {
    removed = true;
    unmount();
    root.remove();
  };
}

/**
 * @param {HTMLElement} root
 * @param {RunScene} scene
 * @param {RunModel} model
 * @returns {() => void} unmounts the scene
 */
function mountRun(root, scene, model) {
  const state = new RunState(scene);
  const palette = () => PALETTES[hostTheme()];
  const heat = new HeatRows(state, palette);
  const lanes = scene.lanes.map((each) =>
    makeCollectiveLanes(each, palette, (rank) => state.selectRank(rank)),
  );
  const ops = makeOpDifference(scene);
  const tabs = makeTabs(bottomTabs(scene, lanes, ops.element), firstTab(scene));
  const own = makeOwnViews(root, scene, model);
  const side = makeSidePanel(state, {
    ...own,
    compare: (rank) => {
      ops.show(rank);
      tabs.show("Ops of two ranks");
      tabs.element.scrollIntoView({ block: "nearest" });
    },
  });
  const legend = h("div", "agv-run-legend");
  const fillLegend = () => legend.replaceChildren(...legendOf(heat, state.mode, palette()));
  state.listeners.push(fillLegend, () => {
    const rank = scene.ranks[state.row]?.rank ?? -1;
    if (model.get("rank") === rank) return;
    model.set("rank", rank);
    model.save_changes();
  });
  const main = h(
    "section",
    "agv-run-main",
    h(
      "div",
      "agv-run-head",
      h("h2", "", "Ranks and steps"),
      modeMenu(state),
      legend,
      zoomButtons(heat),
    ),
    groupStrip(scene, heat),
    heat.view.element,
  );
  const body = h("div", "agv-run-body", main, tabs.element, side);
  body.style.setProperty("--agv-run-rows", `${heat.rowsHeight}px`);
  root.replaceChildren(topBar(scene), body);
  const redraw = () => {
    root.dataset.theme = hostTheme();
    fillLegend();
    heat.view.draw();
    for (const { view } of lanes) view.draw();
  };
  redraw();
  const select = () => state.selectRank(model.get("rank") ?? -1);
  model.on("change:rank", select);
  select();
  const stop = watchTheme(redraw);
  return () => {
    stop();
    model.off("change:rank", select);
    own.close();
    heat.view.destroy();
    for (const { view } of lanes) view.destroy();
  };
}

/**
 * Return a button for each group of ranks, those with odd ranks first; null if there is one group.
 *
 * @param {RunScene} scene
 * @param {HeatRows} heat
 * @returns {HTMLElement | null}
 */
function groupStrip({ groups }, heat) {
  if (groups.length < 2) return null;
  const ordered = [...groups].sort((a, b) => b.odd - a.odd).slice(0, MOST_GROUPS);
  const chips = ordered.map((group) => {
    const odd = group.odd ? `, ${formatCount(group.odd)} odd` : "";
    const style = group.odd ? "agv-pill agv-mutation" : "agv-pill";
    return button(group.label + odd, style, () => heat.showGroup(group));
  });
  const others = groups.length - ordered.length;
  const rest = h("span", "agv-muted", `and ${plural(others, "other group")}`);
  return h("div", "agv-run-pills agv-run-groups", ...chips, others > 0 && rest);
}

/**
 * @param {RunScene} scene
 * @returns {HTMLElement}
 */
function topBar({ title, facts, verdict, notices, findings, ranks }) {
  const odd = !verdict.endsWith(" 0 odd");
  // Of two ranks that differ, neither is known to be the odd one.
  const text = odd && ranks.length === 2 ? "the 2 ranks differ" : verdict;
  return h(
    "header",
    "agv-run-bar",
    glyphElement(COMPARE, "agv-icon-16"),
    h("h1", "", title),
    h("span", "agv-muted", facts),
    h("span", odd ? "agv-strong agv-mutation" : "agv-strong", text),
    h("span", "", plural(findings.length, "finding")),
    ...notices.map((text) => h("span", "agv-muted", text)),
  );
}

/**
 * @param {RunState} state
 * @returns {HTMLElement}
 */
function modeMenu(state) {
  const menu = h("select", { attrs: { "aria-label": "Color" } });
  for (const [mode, text] of Object.entries(MODES)) {
    menu.append(h("option", { text, attrs: { value: mode } }));
  }
  listen(menu, "change", () => state.color(/** @type {Mode} */ (menu.value)));
  return menu;
}

/**
 * @param {HeatRows} heat
 * @returns {HTMLElement}
 */
function zoomButtons(heat) {
  return h(
    "span",
    "agv-inline agv-end",
    button("Zoom out", "agv-icon-button", () => heat.zoomBy(1 / 1.5), glyphElement(MINUS)),
    button("Zoom in", "agv-icon-button", () => heat.zoomBy(1.5), glyphElement(PLUS)),
    button("Show all steps", "agv-icon-button", () => heat.zoomBy(0), glyphElement(FIT)),
  );
}

/**
 * @param {HeatRows} heat
 * @param {Mode} mode
 * @param {import("../canvas/theme.js").Palette} palette
 * @returns {HTMLElement[]}
 */
function legendOf(heat, mode, palette) {
  const colors = scale(mode, palette);
  const swatch = (/** @type {string} */ color) => {
    const box = h("span", "agv-run-swatch");
    box.style.background = color;
    return box;
  };
  if (mode === "differences") {
    const words = ["", "like most", "not ended", "other ops", "other collectives, or NaN"];
    return [1, 2, 3, 4].map((at) => h("span", {}, swatch(colors[at]), words[at]));
  }
  const range = heat.images.range(mode);
  if (!range) return [h("span", "", "not recorded")];
  const levels = [1, 9, 17, 24, 32].map((at) => swatch(colors[at]));
  const [low, high] = range.map((value) => formatValue(mode, value));
  return [
    h("span", {}, `≤ ${low}`, ...levels, `≥ ${high}`),
    ...(isNorm(mode) ? [h("span", {}, swatch(colors[33]), "NaN or infinite")] : []),
  ];
}

export { decodeBase64 } from "../payload/decode.js";

export default { render };
