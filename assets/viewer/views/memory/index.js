// @ts-check
/** The memory view: what fills the memory at the peak, and what would free it. */

import "./memory.css";
import { GLYPHS } from "../../canvas/icon_paths.js";
import { laterTables } from "../../payload/decode.js";
import { Memory } from "./memory.js";
import { mounted } from "../panels_and_tables.js";

/** @type {import("../registry.js").View} */
export const memoryView = {
  name: "memory",
  label: "Memory",
  icon: GLYPHS.memory,
  part: "Memory",
  exists: (scene) => scene.counted_storages.length > 0,
  waitsFor: laterTables,
  mount(store, palette) {
    const memory = new Memory(store, palette);
    return mounted(memory);
  },
};
