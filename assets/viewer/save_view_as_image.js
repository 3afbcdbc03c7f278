// @ts-check
/** Saves the view on display as an SVG or PNG file. */

import { fillBox } from "./canvas/shapes.js";
import { SvgContext } from "./canvas/svg_context.js";

const PNG_SCALE = 2;

/**
 * @param {import("./shared_view_state.js").Store} store
 * @param {import("./shell/view_panes.js").ViewPanes} panes
 * @param {"svg" | "png"} kind
 */
export function exportPicture(store, panes, kind) {
  const picture = panes.picture();
  const { canvas, palette, draw } = picture;
  const { width, height } = picture.size ?? {
    width: canvas.clientWidth,
    height: canvas.clientHeight,
  };
  if (!width || !height) return;
  const name = `${store.scene.summary.title || "autogradviz"}-${store.view}.${kind}`;
  const family = getComputedStyle(canvas).fontFamily;
  const image = document.createElement("canvas");
  const imageContext = /** @type {CanvasRenderingContext2D} */ (image.getContext("2d"));
  const drawOn = (/** @type {any} */ ctx) => {
    fillBox(ctx, palette.surface, 0, 0, width, height);
    draw({ pen: { ctx, palette, family, scale: 1 }, width, height });
  };
  if (kind === "svg") {
    const ctx = new SvgContext(imageContext);
    drawOn(ctx);
    download(new Blob([ctx.text(width, height)], { type: "image/svg+xml" }), name);
    return;
  }
  image.width = width * PNG_SCALE;
  image.height = height * PNG_SCALE;
  imageContext.scale(PNG_SCALE, PNG_SCALE);
  drawOn(imageContext);
  image.toBlob((blob) => blob && download(blob, name), "image/png");
}

/**
 * @param {Blob} blob
 * @param {string} name
 */
function download(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name.replace(/[\\/:*?"<>|\u0000-\u001f]+/g, "_");
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
