// @ts-check
/** Bars between panels; dragging or arrow keys change their widths. */

import { claim, h, listen } from "../dom.js";

const STEP = 16;

/**
 * Remember a width for the next viewer, if the page may store it.
 *
 * @param {string} side
 * @param {number} width
 */
function remember(side, width) {
  try {
    localStorage.setItem(`autogradviz-${side}`, String(Math.round(width)));
  } catch {
    // A page without storage, such as one in a sandbox.
  }
}

/**
 * Give the panels of a viewer the widths that were chosen last.
 *
 * @param {HTMLElement} root
 */
export function restoreWidths(root) {
  for (const side of ["left", "right"]) {
    try {
      const width = Number(localStorage.getItem(`autogradviz-${side}`));
      if (width && width < root.clientWidth * 0.45) {
        root.style.setProperty(`--agv-${side}`, `${width}px`);
      }
    } catch {
      return;
    }
  }
}

/**
 * Return a bar at the edge of its parent that changes the width of a panel in all views.
 *
 * @param {"left" | "right"} side of the viewer on which the panel is
 * @param {() => HTMLElement} panelOf
 * @returns {HTMLElement}
 */
export function splitter(side, panelOf) {
  const label = `Width of the ${side} panel`;
  const attrs = {
    role: "separator",
    tabindex: 0,
    "aria-label": label,
    "aria-valuenow": 0,
    "aria-orientation": "vertical",
  };
  const bar = h("div", { class: `agv-splitter agv-splitter-${side}`, attrs });
  const widen = (/** @type {number} */ dx) => {
    const root = /** @type {HTMLElement} */ (bar.closest(".agv"));
    const width = panelOf().clientWidth + (side === "left" ? dx : -dx);
    const least = Math.max(120, Math.min(width, root.clientWidth * 0.45));
    root.style.setProperty(`--agv-${side}`, `${least}px`);
    remember(side, least);
    bar.ariaValueNow = String(Math.round(least));
  };
  listen(bar, "pointerdown", (event) => bar.setPointerCapture(event.pointerId));
  listen(bar, "pointermove", (event) => {
    if (event.buttons) widen(event.clientX - bar.getBoundingClientRect().x - 3);
  });
  listen(bar, "keydown", (event) => {
    const step = { ArrowLeft: -STEP, ArrowRight: STEP }[event.key];
    if (!step) return;
    claim(event);
    widen(step);
  });
  return bar;
}
