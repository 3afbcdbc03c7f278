// @ts-check
/** The memory view: flame graphs, and the effect of checkpointing or offloading modules. */

import "./memory.css";
import { GLYPHS } from "../../canvas/glyph_shapes.js";
import { h } from "../../dom.js";
import { laterTables } from "../../payload/decode.js";
import { FlameGraph } from "./flame_graph.js";
import { WhatIf } from "./what_if.js";

/** @type {import("../registry.js").View} */
export const memoryView = {
  name: "memory",
  label: "Memory",
  icon: GLYPHS.memory,
  part: "Memory",
  exists: (scene) => !!laterTables(scene) || scene.flame_rows.length > 0,
  waitsFor: laterTables,
  mount(store, palette) {
    const whatIf = new WhatIf(store, palette);
    const flame = new FlameGraph(store);
    return {
      elements: [h("div", "agv-memory agv-panel-grid", flame.element, ...whatIf.elements)],
      redraw: () => whatIf.draw(),
      destroy: () => whatIf.destroy(),
    };
  },
};
