// @ts-check
/** The graph view: outline and legend, the graph itself, details of the selection. */

import "./graph.css";
import "./outline.css";
import "./legend.css";
import { h } from "../../dom.js";
import { GLYPHS } from "../../canvas/icon_paths.js";
import { makeDetails } from "../../shell/details/details.js";
import { splitter } from "../../shell/panel_splitter.js";
import { makeNotices } from "../../shell/recording_notices.js";
import { GraphCanvas } from "./graph_canvas.js";
import { Outline } from "./outline.js";
import { listenToPointer } from "./mouse_touch_and_pen.js";

/** @type {import("../registry.js").View} */
export const graphView = {
  name: "graph",
  label: "Graph",
  icon: GLYPHS.graph,
  shows: ["node", "group"],
  keyHelp: [
    ["click", "select"],
    ["double click, Enter", "open or close a group"],
    ["↑ ↓ ← →", "toward inputs, toward loss, siblings"],
    ["wheel, drag", "zoom, pan"],
    ["f", "fit the whole graph"],
  ],
  mount(store, palette) {
    const graph = new GraphCanvas(store, palette);
    const outline = new Outline(store);
    listenToPointer(graph, store);
    outline.element.append(graph.minimap.element);
    const details = makeDetails(store);
    const stage = h(
      "div",
      "agv-stage",
      makeNotices(store),
      graph.element,
      splitter("left", () => outline.element),
      splitter("right", () => details),
    );
    return {
      elements: [outline.element, stage, details],
      keys: graphKeys(graph, store),
      redraw: () => graph.restyle(),
      destroy() {
        graph.destroy();
        outline.destroy();
      },
      picture: () => ({
        canvas: graph.canvas,
        palette: palette(),
        ...graph.content(),
      }),
    };
  },
};

/**
 * @param {GraphCanvas} graph
 * @param {import("../../shared_view_state.js").Store} store
 * @returns {Record<string, () => unknown>}
 */
function graphKeys(graph, store) {
  const onCanvas = (/** @type {() => void} */ act) => () => {
    if (document.activeElement !== graph.canvas) return false;
    act();
  };
  return {
    f: () => graph.fit(),
    ArrowUp: onCanvas(() => graph.step("up")),
    ArrowDown: onCanvas(() => graph.step("down")),
    ArrowLeft: onCanvas(() => graph.step("left")),
    ArrowRight: onCanvas(() => graph.step("right")),
    Enter: onCanvas(() => {
      if (store.selected?.kind === "group") store.toggle(store.selected.index);
    }),
  };
}
