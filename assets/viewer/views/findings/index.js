// @ts-check
/** The findings view: what is wrong, which line caused it, and the fix. */

import "./findings.css";
import { GLYPHS } from "../../canvas/icon_paths.js";
import { Findings } from "./findings.js";
import { mounted } from "../panels_and_tables.js";

/** @type {import("../registry.js").View} */
export const findingsView = {
  name: "findings",
  label: "Findings",
  icon: GLYPHS.findings,
  shows: ["finding"],
  // Lines that cut a gradient path of a healthy step are no findings.
  badge: ({ findings, facts }) =>
    findings.length || [...facts].reduce((sum, { lines }) => sum + lines, 0),
  badgeStyle: ({ findings }) =>
    findings.some(({ confidence }) => confidence !== "hint")
      ? ""
      : findings.length
        ? "agv-hint"
        : "agv-note",
  mount(store, palette) {
    const findings = new Findings(store, palette);
    return mounted(findings);
  },
};
