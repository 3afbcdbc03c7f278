// @ts-check
/** Positions tooltips. */

/**
 * Place a tooltip next to a point, inside its container.
 *
 * @param {HTMLElement} tooltip
 * @param {number} x
 * @param {number} y
 * @param {number} width of the container
 * @param {number} height
 */
export function placeTooltip(tooltip, x, y, width, height) {
  const right = width - tooltip.offsetWidth - 4;
  tooltip.style.left = `${Math.max(4, Math.min(x + 14, right))}px`;
  const below = y + 18 + tooltip.offsetHeight < height;
  tooltip.style.top = `${below ? y + 18 : Math.max(0, y - tooltip.offsetHeight - 10)}px`;
}
