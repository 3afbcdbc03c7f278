// @ts-check
/** The comparison of two recordings, aligned by module and source line. */

import "./compare.css";
import { GLYPHS } from "../../canvas/icons.js";
import { makeComparison } from "./compare.js";

/** @type {import("../registry.js").View} */
export const compareView = {
  name: "compare",
  label: "Compare",
  icon: GLYPHS.compare,
  exists: (scene) => scene.comparison_rows.length > 0,
  mount: (store) => ({ elements: [makeComparison(store)] }),
};
