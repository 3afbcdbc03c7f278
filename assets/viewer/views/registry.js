// @ts-check
/** The list of views. A new view is a folder with an `index.js`, and one line here. */

import { checkpointView } from "./checkpoint/index.js";
import { compareView } from "./compare/index.js";
import { compiledView } from "./compiled/index.js";
import { foldView } from "./saved_memory_fold/index.js";
import { findingsView } from "./findings/index.js";
import { graphView } from "./graph/index.js";
import { memoryView } from "./memory/index.js";
import { sourceView } from "./source/index.js";
import { tensorsView } from "./tensors/index.js";
import { timelineView } from "./timeline/index.js";

/** @typedef {import("../shared_view_state.js").Item["kind"] | "finding" | "region" | "compiled" | "line"} Shown */

/**
 * @typedef {object} View
 * @property {string} name in the state, in class names and in the names of exported files
 * @property {string} label
 * @property {import("../canvas/icon_paths.js").Glyph} icon
 * @property {Shown[]} [shows] what is displayed in this view
 * @property {[keys: string, action: string][]} [keyHelp] listed in the help of the top bar
 * @property {(scene: import("../types.js").Scene) => number} [badge] a count on the view's button
 * @property {(scene: import("../types.js").Scene) => string} [badgeStyle] its class, if not red
 * @property {(scene: import("../types.js").Scene) => boolean} [exists] whether it is listed
 * @property {string} [part] its name among the parts of the page of the step, if it is one
 * @property {(scene: import("../types.js").Scene) => (() => Promise<unknown>) | undefined} [waitsFor]
 *   decodes what the view needs and the scene still lacks
 * @property {(store: import("../shared_view_state.js").Store, palette: () => Palette) => MountedView} mount
 *   called when the view is displayed for the first time
 */

/** @typedef {import("../canvas/theme.js").Palette} Palette */

/**
 * @typedef {object} MountedView
 * @property {(HTMLElement | null)[]} elements content of the view's pane
 * @property {Record<string, () => unknown>} [keys] by `KeyboardEvent.key`; an action that returns
 *   false leaves the key to others
 * @property {() => void} [redraw] called when the theme changed
 * @property {() => void} [destroy]
 * @property {() => Picture | null} [picture] what an export saves, if it is not the whole view
 */

/**
 * @typedef {object} Picture
 * @property {HTMLElement} canvas whose size and font the picture has
 * @property {Palette} palette
 * @property {{width: number, height: number}} [size] of the content, if it is not the canvas
 * @property {(drawing: import("../canvas/size_cache_and_clip_canvas.js").Drawing) => void} draw
 */

/** @type {View[]} in the order of the navigation rail; the first that exists is displayed first */
export const VIEWS = [
  foldView,
  graphView,
  timelineView,
  findingsView,
  compareView,
  tensorsView,
  memoryView,
  checkpointView,
  compiledView,
  sourceView,
];
