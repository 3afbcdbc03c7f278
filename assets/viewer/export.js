// @ts-check
/** The current view as a file. */

import { paint } from "./views/graph/paint/graph.js";
import { SvgContext } from "./canvas/svg_context.js";

/** @typedef {import("./canvas/text.js").Pen} Pen */
/** @typedef {{pen: Pen, width: number, height: number}} Drawing */

const RATIO = 2;

/**
 * Save the current view; of those that are tables, the graph.
 *
 * @param {import("./store.js").Store} store
 * @param {import("./views/graph/graph_canvas.js").Graph} graph
 * @param {import("./main.js").Late} late
 * @param {"svg" | "png"} kind
 */
export function exportView(store, graph, late, kind) {
  const { canvas, draw, palette } = drawingOf(store, graph, late);
  const { clientWidth: width, clientHeight: height } = canvas;
  if (!width || !height) return;
  const name = `${store.scene.summary.title || "autogradviz"}-${store.view}.${kind}`;
  const family = getComputedStyle(canvas).fontFamily;
  const paper = document.createElement("canvas");
  const real = /** @type {CanvasRenderingContext2D} */ (paper.getContext("2d"));
  const on = (/** @type {any} */ ctx) => {
    ctx.fillStyle = palette.surface;
    ctx.fillRect(0, 0, width, height);
    draw({ pen: { ctx, palette, family, scale: 1 }, width, height });
  };
  if (kind === "svg") {
    const ctx = new SvgContext(real);
    on(ctx);
    save(new Blob([ctx.text(width, height)], { type: "image/svg+xml" }), name);
    return;
  }
  paper.width = width * RATIO;
  paper.height = height * RATIO;
  real.scale(RATIO, RATIO);
  on(real);
  paper.toBlob((blob) => blob && save(blob, name), "image/png");
}

/**
 * @param {import("./store.js").Store} store
 * @param {import("./views/graph/graph_canvas.js").Graph} graph
 * @param {import("./main.js").Late} late
 * @returns {{canvas: HTMLElement, draw: (drawing: Drawing) => void, palette: import("./canvas/theme.js").Palette}}
 */
function drawingOf(store, graph, { timeline, tensors }) {
  if (store.view === "timeline" && timeline) {
    const draw = (/** @type {Drawing} */ drawing) => timeline.paint(drawing);
    return { canvas: timeline.canvas, draw, palette: timeline.palette() };
  }
  if (store.view === "tensors" && tensors && store.scene.storages.length) {
    const { lifelines } = tensors;
    const draw = (/** @type {Drawing} */ drawing) => lifelines.paint(drawing);
    return { canvas: lifelines.canvas, draw, palette: lifelines.palette() };
  }
  store.show("graph");
  const draw = (/** @type {Drawing} */ { pen }) =>
    paint({ ...pen, scale: graph.camera.scale }, graph.look(1));
  return { canvas: graph.canvas, draw, palette: graph.palette() };
}

/**
 * @param {Blob} blob
 * @param {string} name
 */
function save(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name.replace(/[\\/:*?"<>|\u0000-\u001f]+/g, "_");
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
