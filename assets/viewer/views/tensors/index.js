// @ts-check
/** The tensors view: lifelines of saved tensors, a table of them, saved memory over time. */

import "./tensors.css";
import { GLYPHS } from "../../canvas/icon_paths.js";
import { Tensors } from "./tensors.js";
import { mounted } from "../panels_and_tables.js";

/** @type {import("../registry.js").View} */
export const tensorsView = {
  name: "tensors",
  label: "Tensors",
  icon: GLYPHS.tensors,
  part: "Tensors",
  shows: ["storage"],
  mount(store, palette) {
    const tensors = new Tensors(store, palette);
    const { lifelines } = tensors;
    return {
      ...mounted(tensors),
      picture: () =>
        store.scene.storages.length
          ? {
              canvas: lifelines.canvas,
              palette: palette(),
              draw: (drawing) => lifelines.paint(drawing),
            }
          : null,
    };
  },
};
