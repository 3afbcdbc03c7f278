// @ts-check
/** The source view: the recorded source lines with the cost of each. */

import "./source.css";
import { GLYPHS } from "../../canvas/icon_paths.js";
import { makeSource } from "./line_costs.js";

/** @type {import("../registry.js").View} */
export const sourceView = {
  name: "source",
  label: "Source",
  icon: GLYPHS.source,
  part: "Source",
  shows: ["line"],
  mount: (store) => ({ elements: [makeSource(store)] }),
};
