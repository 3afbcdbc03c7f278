// @ts-check
/** What floats on the graph: zoom, which halves show, what the colours mean, the lit way. */

import { tintsOf } from "../../scene/colors.js";
import { button, choice, h } from "../../dom.js";
import { plural } from "../../scene/format.js";
import { icon } from "../../canvas/icons.js";

/** @typedef {import("../../store.js").Store} Store */

const STEPS = 5;

/**
 * @param {import("./graph_canvas.js").Graph} graph
 * @param {Store} store
 * @returns {HTMLElement[]}
 */
export function makeTools(graph, store) {
  const middle = () => /** @type {const} */ ([graph.width / 2, graph.height / 2]);
  const half = (/** @type {string} */ name) =>
    store.showHalf(/** @type {import("../../store.js").Half} */ (name));
  const tools = h(
    "div",
    { class: "agv-tools agv-float" },
    button("Zoom in", "agv-tool", () => graph.zoom(1.25, ...middle()), icon("plus")),
    button("Zoom out", "agv-tool", () => graph.zoom(0.8, ...middle()), icon("minus")),
    button("Fit the whole graph (f)", "agv-tool", () => graph.fit(), icon("fit")),
    choice(["both", "forward", "backward"], "both", half),
  );
  return [tools, makeKey(store), makeRouteChip(store)];
}

/**
 * What weak and strong fills mean; hidden while fills say kinds.
 *
 * @param {Store} store
 * @returns {HTMLElement}
 */
function makeKey(store) {
  const key = h("div", { class: "agv-colour-key agv-float" });
  const fill = () => {
    const tints = tintsOf(store.atlas, store.colour);
    key.hidden = !tints;
    if (!tints) return;
    const boxes = Array.from({ length: STEPS }, (_, at) => {
      const box = h("span", { class: "agv-colour-step" });
      const share = 0.06 + (0.44 * at) / (STEPS - 1);
      box.style.background = `color-mix(in srgb, var(--${tints.hue}) ${share * 100}%, var(--surface))`;
      return box;
    });
    key.replaceChildren(h("b", { text: store.colour }), tints.low, ...boxes, tints.high);
  };
  store.subscribe((change) => change === "look" && fill());
  fill();
  return key;
}

/**
 * @param {Store} store
 * @returns {HTMLElement}
 */
function makeRouteChip(store) {
  const chip = h("div", { class: "agv-route agv-float" });
  const fill = () => {
    const { route } = store;
    chip.hidden = !route;
    if (!route) return;
    chip.replaceChildren(
      h("b", { text: "Path from loss" }),
      plural(route.nodes.length, "node"),
      button("Put the path out", "agv-tool", () => store.showRoute(null), icon("close")),
    );
  };
  store.subscribe((change) => change === "path" && fill());
  fill();
  return chip;
}
