// @ts-check
/** The view of compiled regions: what torch.compile saved, recomputed and broke. */

import "./compiled.css";
import { GLYPHS } from "../../canvas/icon_paths.js";
import { svgPicture } from "../../canvas/html_elements_as_picture.js";
import { Compiled } from "./compiled.js";

/** @type {import("../registry.js").View} */
export const compiledView = {
  name: "compiled",
  label: "Compiled",
  icon: GLYPHS.compiled,
  shows: ["compiled"],
  exists: (scene) => scene.compiled_steps.length > 0,
  mount(store, palette) {
    const compiled = new Compiled(store);
    return {
      elements: [compiled.element],
      picture: () => (compiled.picture ? svgPicture(compiled.picture.element, palette()) : null),
    };
  },
};
