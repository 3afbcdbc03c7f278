// @ts-check
/**
 * Both folds of a comparison side by side, on one scale of bytes, and the curves of the bytes that
 * they hold.
 */

import { startDrawing } from "../../canvas/size_cache_and_clip_canvas.js";
import { hostTheme } from "../../canvas/theme.js";
import { chartCanvas, h, onResize } from "../../dom.js";
import { dotted, formatBytes, unbroken } from "../../scene/format_numbers_and_names.js";
import { heldPoints, paintHeld } from "./overlaid_curves_of_bytes_held.js";
import { largestFold } from "../../scene/bytes_of_ribbons_and_folds.js";
import { paintFold } from "../saved_memory_fold/paint_fold.js";

/** @typedef {import("../../types.js").Scene} Scene */

/** @typedef {{title: string, scene: Scene, fold: number, step: number}} Side one execution */

/**
 * @param {string} title
 * @param {Scene} scene
 * @param {number} [step] index of the only step that counts, -1 for all
 * @returns {Side} with the fold that holds most
 */
export const sideOf = (title, scene, step = -1) => ({
  title,
  scene,
  step,
  fold: largestFold(scene, step),
});

/**
 * Return both folds side by side; the widths of their ribbons have the same scale.
 *
 * @param {() => import("../../canvas/theme.js").Palette} palette
 * @returns {{element: HTMLElement, show: (sides: Side[]) => void}}
 */
export function makeFolds(palette) {
  const panes = [0, 1].map(() => {
    const canvas = chartCanvas();
    return { canvas, title: h("div", "agv-muted") };
  });
  const cells = panes.map(({ canvas, title }) =>
    h("div", "agv-two-fold", title, h("div", "agv-two-fold-canvas", canvas)),
  );
  const held = chartCanvas("What saved tensors of both hold over time");
  const heldTitle = h("div", "agv-muted");
  cells.push(h("div", "agv-two-fold", heldTitle, h("div", "agv-two-fold-canvas", held)));
  const element = h("div", "agv-two-folds", ...cells);
  element.hidden = true;
  /** @type {Side[]} */
  let shown = [];
  const draw = () => {
    paintHeld(held, palette(), shown.map(heldPoints));
    const totals = shown.map(({ scene, fold }) => scene.folds[fold]?.nbytes ?? 0);
    const most = Math.max(1, ...totals);
    shown.forEach(({ scene, fold: at }, place) => {
      const { canvas } = panes[place];
      const drawing = startDrawing(canvas, palette());
      const fold = scene.folds[at];
      if (!drawing || !fold) return;
      const wide = (/** @type {number} */ own) => Math.max(60, (drawing.width * own) / most);
      const width = wide(totals[place]);
      const ribbons = scene.ribbons.filter((each) => each.fold === at);
      const nothing = { time: null, work: -1, hovered: null, lit: new Set(), planned: new Set() };
      const picture = { scene, fold, ribbons, theme: hostTheme(), ...nothing };
      paintFold({ ...drawing, width }, picture);
    });
  };
  onResize(element, draw);
  const show = (/** @type {Side[]} */ sides) => {
    shown = sides;
    element.hidden = !sides.some(({ fold }) => fold >= 0);
    const [first, second] = sides.map(({ title }) => title);
    const lines = `${second ? ` · dashed ${first}, solid ${second}` : ""} · over events`;
    heldTitle.replaceChildren(h("b", "", "Held"), lines);
    sides.forEach(({ title, scene, fold: at, step }, place) => {
      const fold = scene.folds[at];
      const { number = -1 } = (step < 0 && scene.steps[1] && scene.steps[fold?.step]) || {};
      const own = fold?.label ? ` for ${fold.label}` : "";
      const shared = fold?.shared_nbytes ? `, ${formatBytes(fold.shared_nbytes)} shared` : "";
      const peak = fold
        ? `${formatBytes(fold.peak_nbytes)} at the peak${own}${shared}`
        : "no saved tensor";
      const text = ` · ${dotted([number >= 0 && `step ${number}`, peak])}`;
      panes[place].title.replaceChildren(h("b", "", title), unbroken(text));
      panes[place].canvas.setAttribute("aria-label", `${title}: ${fold?.sentence ?? peak}`);
    });
    draw();
  };
  return { element, show };
}
