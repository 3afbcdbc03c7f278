// @ts-check
/** The comparison of two recordings, or of two steps, aligned by module and source line. */

import "./compare.css";
import { GLYPHS } from "../../canvas/icon_paths.js";
import { makeComparison } from "./compare_recordings.js";
import { makeStepComparison } from "./compare_steps.js";

/** @type {import("../registry.js").View} */
export const compareView = {
  name: "compare",
  label: "Compare",
  icon: GLYPHS.compare,
  exists: (scene) => scene.comparison_rows.length > 0 || scene.steps.length > 1,
  mount: (store, palette) => ({
    elements: [
      store.scene.comparison_rows.length
        ? makeComparison(store, palette)
        : makeStepComparison(store, palette),
    ],
  }),
};
