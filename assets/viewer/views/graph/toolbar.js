// @ts-check
/** Controls of the graph: zoom, color scale, highlighted path. */

import { makeColoring } from "../../scene/graph_colorings.js";
import { formChoice } from "../compiled/switch_saved_values_before_after_hooks.js";
import { button, h } from "../../dom.js";
import { plural } from "../../scene/format_numbers_and_names.js";
import { icon } from "../../canvas/draw_icon.js";

/** @typedef {import("../../shared_view_state.js").Store} Store */

const COLOR_STEPS = 7;

/**
 * @param {import("./graph_canvas.js").GraphCanvas} graph
 * @param {Store} store
 * @returns {HTMLElement[]}
 */
export function makeToolbar(graph, store) {
  const center = () => /** @type {const} */ ([graph.width / 2, graph.height / 2]);
  const drawn = graph.count;
  store.subscribe(["step"], () => graph.countDrawn());
  const toolbar = h(
    "div",
    "agv-toolbar",
    button("Zoom in", "agv-icon-button", () => graph.zoom(1.25, ...center()), icon("plus")),
    button("Zoom out", "agv-icon-button", () => graph.zoom(0.8, ...center()), icon("minus")),
    button("Fit the whole graph (f)", "agv-icon-button", () => graph.fit(), icon("fit")),
    graph.legend.element,
    drawn,
    store.scene.compiled_pictures.some((each) => each.hooks && each.initial) && formChoice(store),
  );
  return [toolbar, makeColorScale(store), makePathLabel(store)];
}

/**
 * Return the legend of the coloring; hidden without a coloring.
 *
 * @param {Store} store
 * @returns {HTMLElement}
 */
function makeColorScale(store) {
  const scale = h("div", "agv-color-scale agv-float");
  const fill = () => {
    const coloring = makeColoring(store.sceneIndex, store.colorBy);
    scale.hidden = !coloring;
    if (!coloring) return;
    const box = (/** @type {string} */ hue, /** @type {number} */ share) => {
      const step = h("span", "agv-color-step");
      step.style.background = `color-mix(in srgb, var(--${hue}) ${share * 100}%, var(--surface))`;
      return step;
    };
    const { scale: tintAt, low, high, kinds } = coloring;
    const steps = Array.from({ length: COLOR_STEPS }, (_, at) => {
      const { hue, share } = tintAt(at / (COLOR_STEPS - 1));
      return box(hue, share);
    });
    const parts = kinds?.flatMap(([tint, label]) => [box(tint.hue, tint.share), label]);
    scale.classList.toggle("agv-color-kinds", !!kinds);
    scale.replaceChildren(h("b", "", store.colorBy), ...(parts ?? [low, ...steps, high]));
  };
  store.subscribe(["colorBy"], fill);
  fill();
  return scale;
}

/**
 * Return a label with the length of the highlighted path; hidden without one.
 *
 * @param {Store} store
 * @returns {HTMLElement}
 */
function makePathLabel(store) {
  const label = h("div", "agv-path-label agv-float");
  const fill = () => {
    const { gradientPath } = store;
    label.hidden = !gradientPath;
    if (!gradientPath) return;
    label.replaceChildren(
      h("b", "", "Path from loss"),
      plural(gradientPath.nodes.length, "node"),
      button(
        "Hide the path",
        "agv-icon-button",
        () => store.set("gradientPath", null),
        icon("close"),
      ),
    );
  };
  store.subscribe(["gradientPath"], fill);
  fill();
  return label;
}
