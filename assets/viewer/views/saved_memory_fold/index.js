// @ts-check
/** The step: what autograd keeps, from the forward that saved it to the backward that reads it. */

import "./fold.css";
import { GLYPHS } from "../../canvas/icon_paths.js";
import { Fold } from "./fold.js";
import { mounted } from "../panels_and_tables.js";

/** @type {import("../registry.js").View} */
export const foldView = {
  name: "fold",
  label: "Step",
  icon: GLYPHS.fold,
  part: "Fold",
  exists: (scene) => scene.ribbons.length > 0,
  keyHelp: [["← → on the fold", "the next ribbon; Enter selects its tensor"]],
  mount(store, palette) {
    const fold = new Fold(store, palette);
    return {
      ...mounted(fold),
      picture: () => ({
        canvas: fold.canvas,
        palette: palette(),
        draw: (drawing) => fold.paint(drawing),
      }),
    };
  },
};
