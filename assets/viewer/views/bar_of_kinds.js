// @ts-check
/** Bars of bytes in the colors of their kinds. */

import { h } from "../dom.js";
import { formatBytes } from "../scene/format_numbers_and_names.js";
import { kindFill, largestKinds } from "../scene/saved_kind_colors.js";

/**
 * @param {import("../types.js").Scene} scene
 * @param {Map<string, number>} sums bytes by name or title of the kind
 * @param {number} whole bytes of the entire width
 * @returns {HTMLElement[]} the pieces of a bar, the largest first
 */
export function piecesOfKinds(scene, sums, whole) {
  return largestKinds(scene, sums).map(([kind, nbytes]) => {
    const title = scene.saved_kinds.find(({ name }) => name === kind)?.title ?? kind;
    const piece = h("span", { title: `${title}: ${formatBytes(nbytes)}` });
    piece.style.width = `max(1.5px, ${(100 * nbytes) / (whole || 1)}%)`;
    piece.style.background = kindFill(scene, kind);
    return piece;
  });
}
