// @ts-check
/** The findings view: what is wrong, which line caused it, and the fix. */

import "./findings.css";
import { GLYPHS } from "../../canvas/icon_paths.js";
import { Findings } from "./findings.js";

/** @type {import("../registry.js").View} */
export const findingsView = {
  name: "findings",
  label: "Findings",
  icon: GLYPHS.findings,
  shows: ["finding"],
  badge: ({ findings }) => findings.length,
  alarms: ({ findings }) => findings.some(({ confidence }) => confidence !== "hint"),
  mount(store, palette) {
    const findings = new Findings(store, palette);
    return {
      elements: [findings.element],
      redraw: () => findings.draw(),
      destroy: () => findings.destroy(),
    };
  },
};
