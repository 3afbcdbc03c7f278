// @ts-check
/** The checkpoint view: each region's forward next to its recomputation. */

import "./checkpoint.css";
import { GLYPHS } from "../../canvas/icon_paths.js";
import { Checkpoint } from "./checkpoint.js";

/** @type {import("../registry.js").View} */
export const checkpointView = {
  name: "checkpoint",
  label: "Checkpoint",
  icon: GLYPHS.checkpoint,
  shows: ["region"],
  exists: (scene) => scene.regions.length > 0,
  mount(store, palette) {
    const checkpoint = new Checkpoint(store, palette);
    return {
      elements: [checkpoint.element],
      keys: { n: () => checkpoint.next() },
      redraw: () => checkpoint.held?.draw(),
    };
  },
};
