// @ts-check
/** The legend of shapes and colors, painted like those of the graph. */

import { fillBox, setStroke, tracePath } from "../../canvas/shapes.js";
import { h } from "../../dom.js";
import { distinct } from "../../payload/lazy_rows.js";
import { paintGlyph } from "../../canvas/draw_icon.js";
import { roundRect } from "../../canvas/text_fitted_to_width.js";
import { mix } from "../../canvas/theme.js";
import { failedNode } from "../../scene/state_at_replayed_time.js";

/** @typedef {import("../../canvas/theme.js").Palette} Palette */
/** @typedef {import("../../types.js").Scene} Scene */
/** @typedef {import("../../shared_view_state.js").Store} Store */
/** @typedef {(ctx: CanvasRenderingContext2D, palette: Palette) => void} Sample */

const WIDTH = 30;
const HEIGHT = 14;

/**
 * @param {boolean} ran
 * @returns {Sample}
 */
function nodeSample(ran) {
  return (ctx, palette) => {
    const hue = ran ? palette.backward : mix(palette.backward, palette.surface, 0.5);
    ctx.fillStyle = ran ? mix(hue, palette.surface, palette.nodeTint) : palette.surface;
    ctx.beginPath();
    ctx.roundRect(12, 1.5, 17, 11, [0, 4, 4, 0]);
    ctx.fill();
    ctx.strokeStyle = hue;
    roundRect(ctx, 1, 1.5, 28, 11, 4);
    ctx.stroke();
    tracePath(ctx, [12, 1.5], [12, 12.5]);
    ctx.stroke();
  };
}

/**
 * @param {"saved" | "recompute" | "mutation" | "text2"} hue
 * @returns {Sample}
 */
function badgeSample(hue) {
  return (ctx, palette) => {
    ctx.fillStyle = mix(palette[hue], palette.surface, palette.badgeTint);
    ctx.strokeStyle = mix(palette[hue], palette.surface, 0.55);
    roundRect(ctx, 1, 1.5, 28, 11, 3);
    ctx.fill();
    ctx.stroke();
    fillBox(ctx, palette[hue], 1, 1, 4, 12);
  };
}

/**
 * @param {import("../../canvas/icon_paths.js").GlyphName} name
 * @param {"leaf" | "mutation" | "path" | "recompute" | "text2"} hue
 * @returns {Sample}
 */
function glyphSample(name, hue) {
  return (ctx, palette) => paintGlyph(ctx, name, 15, 7, 13, palette[hue], palette.surface);
}

/**
 * @param {"edge" | "backward" | "path"} hue
 * @param {number} width
 * @returns {Sample}
 */
function arrowSample(hue, width) {
  return (ctx, palette) => {
    setStroke(ctx, (ctx.fillStyle = palette[hue]), width);
    tracePath(ctx, [1, 7], [22, 7]);
    ctx.stroke();
    tracePath(ctx, [29, 7], [21, 3], [21, 11]);
    ctx.fill();
  };
}

/**
 * @param {string} state
 * @returns {(scene: Scene) => boolean}
 */
function hasGradient(state) {
  return ({ parameter_badges }) => distinct(parameter_badges, "grad").has(state);
}

/**
 * @param {string} state
 * @param {import("../../canvas/icon_paths.js").GlyphName} name
 * @param {"leaf" | "mutation"} hue
 * @param {string} text
 * @returns {Entry} the same text in both legends
 */
const gradientEntry = (state, name, hue, text) => [
  glyphSample(name, hue),
  text,
  hasGradient(state),
  text,
];

/**
 * @param {Scene} scene
 * @param {string} field
 * @returns {boolean} whether any node has it
 */
function some({ nodes }, field) {
  return [...distinct(nodes, field)].some((value) => value && value.length !== 0);
}

/**
 * @typedef {[paint: Sample, label: string, occurs: (scene: Scene) => boolean, short?: string, isDrawn?: (store: Store) => boolean]} Entry
 *   the short label is that of the line below the graph, where entries are only while they are drawn
 */

/** @type {Entry[]} */
const ENTRIES = [
  [
    glyphSample("failed", "mutation"),
    "failed, or named by a finding",
    (scene) => !!failedNode(scene),
    "failed",
  ],
  [nodeSample(true), "forward | backward", () => true, "backward ran"],
  [
    nodeSample(false),
    "backward not reached",
    ({ nodes }) => distinct(nodes, "state").has("not_run"),
    "not reached",
  ],
  [badgeSample("saved"), "saved tensor, version", ({ saved_badges }) => saved_badges.length > 0],
  [
    badgeSample("text2"),
    "freed, not recomputed",
    ({ saved_badges }) => distinct(saved_badges, "state").has("freed"),
  ],
  [
    badgeSample("recompute"),
    "freed, recomputed",
    ({ saved_badges }) => distinct(saved_badges, "state").has("recomputed"),
  ],
  [
    (ctx, palette) => {
      tracePath(ctx, [1, 2], [23, 2], [29, 7], [23, 12], [1, 12]);
      ctx.closePath();
      ctx.fillStyle = mix(palette.leaf, palette.surface, palette.badgeTint);
      ctx.strokeStyle = mix(palette.leaf, palette.surface, 0.7);
      ctx.fill();
      ctx.stroke();
    },
    "parameter",
    ({ parameter_badges }) => parameter_badges.length > 0,
  ],
  gradientEntry("ok", "check", "leaf", "got a gradient"),
  gradientEntry("none", "none", "leaf", "got no gradient"),
  gradientEntry("zero", "zero", "mutation", "gradient is zero"),
  [
    glyphSample("nan", "mutation"),
    "NaN or infinite",
    (scene) => hasGradient("nan")(scene) || some(scene, "not_finite"),
  ],
  [glyphSample("pencil", "mutation"), "write that did harm", (scene) => some(scene, "writes")],
  [
    glyphSample("pencil", "text2"),
    "in-place write",
    (scene) => some(scene, "wrote") && scene.nodes.some((node) => node.wrote && !node.writes),
  ],
  [glyphSample("clone", "recompute"), "cloned before a write", (scene) => some(scene, "cloned")],
  [
    (ctx, palette) => {
      ctx.setLineDash([4, 2.5]);
      ctx.strokeStyle = palette.recompute;
      roundRect(ctx, 1, 1.5, 28, 11, 4);
      ctx.stroke();
      paintGlyph(ctx, "checkpoint", 15, 7, 10, palette.recompute);
    },
    "checkpoint, recomputed",
    (scene) => some(scene, "recomputes") || scene.groups.some((group) => group.checkpointed),
  ],
  [
    glyphSample("found", "path"),
    "in a finding",
    (scene) => scene.findings.some(({ nodes }) => nodes.some((at) => !scene.nodes[at].error)),
    "finding",
  ],
  [
    (ctx, palette) => paintGlyph(ctx, "hook", 15, 7, 13, palette.surface, palette.text2),
    "hook",
    (scene) => some(scene, "hooks"),
  ],
  [arrowSample("edge", 1.2), "gradient flows to", () => true, "gradient flows"],
  [
    arrowSample("backward", 1.8),
    "edge of the selected node",
    () => true,
    "selected",
    ({ selected }) => !!selected,
  ],
  [
    arrowSample("path", 2.4),
    "path from the loss",
    () => true,
    "path from loss",
    ({ gradientPath, scene }) => !!gradientPath || distinct(scene.edges, "on_path").has(true),
  ],
  [
    (ctx, palette) => {
      ctx.setLineDash([3, 2]);
      setStroke(ctx, palette.path, 1.6);
      ctx.moveTo(1, 7);
      ctx.lineTo(29, 7);
      ctx.stroke();
    },
    "a gradient path that a line cuts",
    ({ detaches }) => detaches.length > 0,
    "no gradient",
  ],
];

export class Legend {
  /**
   * @param {Scene} scene only entries that occur in it are listed
   * @param {"rows" | "line"} form
   */
  constructor(scene, form = "rows") {
    const isLine = form === "line";
    this.entries = ENTRIES.filter(([, , occurs, short]) => occurs(scene) && (short || !isLine));
    const rows = this.entries.flatMap(([, label, , short]) => {
      const sample = h("canvas", { attrs: { "aria-hidden": "true" } });
      const text = h("span", { text: (isLine && short) || label, title: label });
      return isLine ? [h("span", "", sample, text)] : [sample, text];
    });
    this.element = h("div", `agv-legend-${form}`, ...rows);
  }

  /** @param {Store} store */
  update(store) {
    this.entries.forEach(([, , , , isDrawn], at) => {
      const entry = /** @type {HTMLElement} */ (this.element.children[at]);
      entry.hidden = isDrawn?.(store) === false;
    });
  }

  /** @param {Palette} palette */
  draw(palette) {
    const ratio = window.devicePixelRatio || 1;
    this.element.querySelectorAll("canvas").forEach((canvas, at) => {
      canvas.width = WIDTH * ratio;
      canvas.height = HEIGHT * ratio;
      canvas.style.width = `${WIDTH}px`;
      canvas.style.height = `${HEIGHT}px`;
      const ctx = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
      ctx.scale(ratio, ratio);
      this.entries[at][0](ctx, palette);
    });
  }
}
