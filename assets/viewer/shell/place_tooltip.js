// @ts-check
/** Fills and positions tooltips. */

import { h } from "../dom.js";

/**
 * Write lines into a tooltip and place it next to a point, inside its container.
 *
 * @param {HTMLElement} tooltip
 * @param {(Node | string)[]} lines the first text is a title
 * @param {number} x
 * @param {number} y
 * @param {number} width of the container
 * @param {number} height
 */
export function placeTooltip(tooltip, lines, x, y, width, height) {
  tooltip.replaceChildren(
    ...lines.map((line, at) =>
      line instanceof Node ? line : h("div", at ? "" : "agv-strong", line),
    ),
  );
  const right = width - tooltip.offsetWidth - 4;
  tooltip.style.left = `${Math.max(4, Math.min(x + 14, right))}px`;
  const below = y + 18 + tooltip.offsetHeight < height;
  tooltip.style.top = `${below ? y + 18 : Math.max(0, y - tooltip.offsetHeight - 10)}px`;
}
