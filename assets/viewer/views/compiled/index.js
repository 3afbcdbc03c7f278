// @ts-check
/** The view of compiled regions: what torch.compile saved, recomputed and broke. */

import "./compiled.css";
import { GLYPHS } from "../../canvas/icons.js";
import { Compiled } from "./compiled.js";

/** @type {import("../registry.js").View} */
export const compiledView = {
  name: "compiled",
  label: "Compiled",
  icon: GLYPHS.compiled,
  shows: ["compiled"],
  exists: (scene) => scene.compiled_steps.length > 0,
  mount: (store) => ({ elements: [new Compiled(store).element] }),
};
