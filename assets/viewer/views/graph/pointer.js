// @ts-check
/** Mouse, touch and pen on the graph. */

import { hitAt } from "./hit_test.js";

const HOVER_MS = 150;
const DRAG_FROM = 4;

/**
 * Let a graph be dragged, zoomed, clicked and hovered.
 *
 * @param {import("./graph_canvas.js").Graph} graph
 * @param {import("../../store.js").Store} store
 */
export function listenToPointer(graph, store) {
  const { canvas } = graph;
  /** @type {Map<number, {x: number, y: number}>} */
  const fingers = new Map();
  let dragged = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let hoverTimer;

  const hit = (/** @type {MouseEvent} */ event) => {
    const [x, y] = graph.worldAt(event.offsetX, event.offsetY);
    return hitAt(store.atlas, graph.placement, x, y);
  };
  const stopHover = () => {
    clearTimeout(hoverTimer);
    if (graph.hovered) graph.hover(null, 0, 0);
  };

  canvas.addEventListener("pointerdown", (event) => {
    stopHover();
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    dragged = 0;
  });

  canvas.addEventListener("pointermove", (event) => {
    const finger = fingers.get(event.pointerId);
    if (!finger) {
      clearTimeout(hoverTimer);
      const found = hit(event);
      canvas.style.cursor = found ? "pointer" : "grab";
      if (!found) stopHover();
      else
        hoverTimer = setTimeout(
          () => graph.hover(found.item, event.offsetX, event.offsetY),
          HOVER_MS,
        );
      return;
    }
    const apart = spanOf(fingers);
    const [dx, dy] = [event.offsetX - finger.x, event.offsetY - finger.y];
    fingers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    dragged += Math.abs(dx) + Math.abs(dy);
    if (dragged < DRAG_FROM) return;
    if (fingers.size > 1) graph.zoom(spanOf(fingers) / apart || 1, event.offsetX, event.offsetY);
    else graph.pan(dx, dy);
  });

  for (const end of /** @type {const} */ (["pointerup", "pointercancel"])) {
    canvas.addEventListener(end, (event) => fingers.delete(event.pointerId));
  }
  canvas.addEventListener("pointerleave", stopHover);

  canvas.addEventListener("click", (event) => {
    if (dragged >= DRAG_FROM) return;
    const found = hit(event);
    store.select(found && found.item);
    if (found?.chevron) store.toggle(found.item.index);
  });

  canvas.addEventListener("dblclick", (event) => {
    const found = hit(event);
    if (found?.item.kind === "group" && !found.chevron) store.toggle(found.item.index);
  });

  canvas.addEventListener(
    "wheel",
    (event) => {
      // A notebook scrolls past a graph that nobody is using.
      const inUse = document.activeElement === canvas || event.ctrlKey || event.metaKey;
      if (!inUse) return;
      event.preventDefault();
      stopHover();
      const lines = event.deltaMode === 1 ? 16 : 1;
      graph.zoom(
        Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0015)),
        event.offsetX,
        event.offsetY,
      );
    },
    { passive: false },
  );
}

/**
 * @param {Map<number, {x: number, y: number}>} fingers
 * @returns {number} how far apart the first two are, 0 of one
 */
function spanOf(fingers) {
  const [a, b] = fingers.values();
  return a && b ? Math.hypot(a.x - b.x, a.y - b.y) : 0;
}
