// @ts-check
/** The timeline view: what ran when, and a profile of a time range. */

import "./timeline.css";
import { GLYPHS } from "../../canvas/icon_paths.js";
import { Timeline } from "./timeline.js";
import { mounted } from "../panels_and_tables.js";

/** @type {import("../registry.js").View} */
export const timelineView = {
  name: "timeline",
  label: "Time",
  icon: GLYPHS.timeline,
  keyHelp: [["W A S D", "zoom and pan the timeline"]],
  mount(store, palette) {
    const timeline = new Timeline(store, palette);
    return {
      ...mounted(timeline),
      picture: () => ({
        canvas: timeline.canvas,
        palette: palette(),
        draw: (drawing) => timeline.paint(drawing),
      }),
    };
  },
};
