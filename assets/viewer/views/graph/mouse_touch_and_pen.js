// @ts-check
/** Mouse, touch and pen input on the graph. */

import { listen } from "../../dom.js";
import { storageOf } from "../compiled/describe_part.js";
import { hitAt } from "./hit_test.js";

const HOVER_MS = 150;
/** Pointer movement in pixels from which a press is a drag. */
const DRAG_DISTANCE = 4;

/**
 * Pan, zoom, select and hover with the pointer.
 *
 * @param {import("./graph_canvas.js").GraphCanvas} graph
 * @param {import("../../shared_view_state.js").Store} store
 */
export function listenToPointer(graph, store) {
  const { canvas } = graph;
  /** @type {Map<number, {x: number, y: number}>} */
  const pointers = new Map();
  let dragged = 0;
  /** True if the last click, or the first of a double click, was on the chevron of a group. */
  let onChevron = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let hoverTimer;

  const hit = (/** @type {MouseEvent} */ event) => {
    const [x, y] = graph.worldAt(event.offsetX, event.offsetY);
    return hitAt(graph.sceneIndex, graph.placement, x, y);
  };
  const stopHover = () => {
    clearTimeout(hoverTimer);
    if (graph.hovered) graph.hover(null, 0, 0);
  };

  listen(canvas, "pointerdown", (event) => {
    stopHover();
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    dragged = 0;
  });

  listen(canvas, "pointermove", (event) => {
    const previous = pointers.get(event.pointerId);
    if (!previous) {
      clearTimeout(hoverTimer);
      const found = hit(event);
      canvas.style.cursor = found ? "pointer" : "grab";
      if (!found) stopHover();
      else
        hoverTimer = setTimeout(
          () => graph.hover(found.item, event.offsetX, event.offsetY, found.part),
          HOVER_MS,
        );
      return;
    }
    const before = pointerDistance(pointers);
    const [dx, dy] = [event.offsetX - previous.x, event.offsetY - previous.y];
    pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    dragged += Math.abs(dx) + Math.abs(dy);
    if (dragged < DRAG_DISTANCE) return;
    if (pointers.size > 1)
      graph.zoom(pointerDistance(pointers) / before || 1, event.offsetX, event.offsetY);
    else graph.pan(dx, dy);
  });

  for (const end of /** @type {const} */ (["pointerup", "pointercancel"])) {
    listen(canvas, end, (event) => pointers.delete(event.pointerId));
  }
  listen(canvas, "pointerleave", stopHover);

  listen(canvas, "click", (event) => {
    if (dragged >= DRAG_DISTANCE) return;
    const found = hit(event);
    store.set("selected", found && (storageOf(store.scene, found.part) ?? found.item));
    // The second click of a double click undoes nothing: what the first one opened has moved.
    if (event.detail > 1) return;
    onChevron = Boolean(found?.chevron);
    if (found && onChevron) store.toggle(found.item.index);
  });

  listen(canvas, "dblclick", (event) => {
    const found = hit(event);
    if (found?.item.kind === "group" && !onChevron) store.toggle(found.item.index);
    const compiled = found?.item.kind === "node" ? store.compiledRegionOf(found.item.index) : -1;
    if (compiled >= 0) store.showCompiled(compiled);
  });

  listen(
    canvas,
    "wheel",
    (event) => {
      // An unfocused graph does not stop the page around it from scrolling.
      const focused = store.isAlone || document.activeElement === canvas;
      if (!focused && !event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      stopHover();
      const unit = event.deltaMode === 1 ? 16 : 1;
      // A pinch comes with the key Ctrl and few pixels, a notch of a wheel with a hundred.
      const power = event.deltaY * unit * (event.ctrlKey ? 0.01 : 0.0015);
      graph.zoom(Math.exp(-Math.max(-0.25, Math.min(0.25, power))), event.offsetX, event.offsetY);
    },
    { passive: false },
  );
}

/**
 * @param {Map<number, {x: number, y: number}>} pointers
 * @returns {number} between the first two, 0 for a single pointer
 */
function pointerDistance(pointers) {
  const [a, b] = pointers.values();
  return a && b ? Math.hypot(a.x - b.x, a.y - b.y) : 0;
}
