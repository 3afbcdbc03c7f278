// @ts-check
/**
 * Paints a broken arrow above each box that reads a detached value from another box, or above the
 * frame whose header would be under it.
 */

import { paintText, roundRect, widthOf, write } from "../../../canvas/text_fitted_to_width.js";
import { HEADER_HEIGHT } from "../../../layout/group_sizes_and_inner_positions.js";
import { visibleFor } from "../../../scene/scene_index.js";

/** @typedef {import("../../../canvas/text_fitted_to_width.js").Pen} Pen */
/** @typedef {import("../../../layout/coordinates.js").Box} Box */

const SIZE = 10;
/** Length of the line to the box of modules without a gradient. */
const GAP = 18;

/**
 * @param {Pen} pen
 * @param {import("./graph.js").Look} look
 * @param {Box[]} boxes in view
 */
export function paintDetaches(pen, look, boxes) {
  const { ctx, palette } = pen;
  const { scene } = look.sceneIndex;
  if (!scene.detaches.length) return;
  const keyOf = (/** @type {number} */ node) => {
    const { kind, index } = visibleFor(look.sceneIndex, look.open, node);
    return `${kind} ${index}`;
  };
  /** @type {Map<string, Set<string>>} */
  const labels = new Map();
  /** @type {Map<string, string>} modules without a gradient, where a finding says that it ends */
  const blamed = new Map();
  for (const { reader, producer, filename, lineno } of scene.detaches) {
    const key = keyOf(reader);
    if (producer >= 0 && key === keyOf(producer)) continue;
    const modules = modulesWithout(scene, filename, lineno);
    if (modules) blamed.set(key, `${modules} · no gradient`);
    const text = `detach, line ${lineno}`;
    labels.set(key, (labels.get(key) ?? new Set()).add(text));
  }
  const edge = look.camera.x + look.width / look.camera.scale;
  for (const box of boxes) {
    const lines = box.kind !== "frame" && labels.get(`${box.kind} ${box.ref}`);
    if (!lines) continue;
    const text = [...lines].join(" · ");
    const isBlamed = blamed.get(`${box.kind} ${box.ref}`) ?? "";
    const color = isBlamed ? palette.path : palette.text2;
    const weight = isBlamed ? 600 : 400;
    ctx.strokeStyle = color;
    ctx.lineWidth = isBlamed ? 2 : 1.4;
    const long = widthOf(pen, text, SIZE, weight) + 8;
    const boxed = isBlamed && widthOf(pen, isBlamed, SIZE, weight) + 16;
    const width = long + (boxed ? boxed + GAP : 0);
    /** @type {Box | undefined} */
    let above = box;
    let [x, y, left] = [0, 0, 0];
    for (let at = above; above; above = boxes.find((each) => hasHeader(each, at, left, width, y))) {
      at = above;
      [x, y] = [at.x + at.width + 10, at.y - 7];
      left = at === box && x + width < edge ? x : x - width;
    }
    ctx.setLineDash([3, 2]);
    ctx.beginPath();
    ctx.moveTo(x - 24, y + 7);
    ctx.lineTo(x - 24, y);
    ctx.lineTo(x - 3, y);
    ctx.stroke();
    ctx.setLineDash([]);
    ctx.beginPath();
    for (const side of [-3, 3]) {
      ctx.moveTo(x - side, y - 3);
      ctx.lineTo(x + side, y + 3);
    }
    ctx.stroke();
    const style = { size: SIZE, weight, color };
    const from = left === x ? x + 8 : left;
    paintText(pen, text, from, y, style);
    if (!boxed) continue;
    // What the path would have led to stands where the line ends.
    const at = from + long;
    ctx.lineWidth = 1.4;
    ctx.setLineDash([3, 2]);
    ctx.beginPath();
    ctx.moveTo(at - 4, y);
    ctx.lineTo(at + GAP - 4, y);
    ctx.stroke();
    roundRect(ctx, at + GAP - 4, y - 9, boxed, 18, 4);
    ctx.fillStyle = palette.surface;
    ctx.fill();
    ctx.stroke();
    ctx.setLineDash([]);
    write(pen, isBlamed, at + GAP + 4, y, style);
  }
}

/**
 * Return the modules whose parameters have no gradient because of a line, if a finding names it.
 *
 * @param {import("../../../types.js").Scene} scene
 * @param {string} filename
 * @param {number} lineno
 * @returns {string} "" if none does
 */
function modulesWithout({ findings, answers, cause_steps: steps }, filename, lineno) {
  if (
    ![...findings].some((each) => each.culprit_file === filename && each.culprit_line === lineno)
  ) {
    return "";
  }
  const names = [...answers]
    .filter((each) => each.subject[0] === "p" && !each.ordinary)
    .filter((each) =>
      each.steps.some((at) => steps[at].filename === filename && steps[at].lineno === lineno),
    )
    .map(({ target }) => target.replace(/\.[^.]*$/, ""));
  const modules = [...new Set(names)];
  const more = modules.length > 2 ? ` and ${modules.length - 1} more` : "";
  return more ? modules[0] + more : modules.join(", ");
}

/**
 * @param {Box} each
 * @param {Box} box
 * @param {number} left
 * @param {number} width
 * @param {number} y of a label above the box
 * @returns {boolean} whether the label is on the header of a frame around the box
 */
function hasHeader({ kind, ...frame }, box, left, width, y) {
  return (
    kind === "frame" &&
    frame.y < box.y &&
    frame.x < left + width &&
    frame.x + frame.width > left &&
    y - 6 < frame.y + HEADER_HEIGHT - 6 &&
    y + 6 > frame.y
  );
}
