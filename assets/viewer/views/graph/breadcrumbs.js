// @ts-check
/** The open groups around the view, displayed while the innermost header is out of view. */

import { button, h } from "../../dom.js";
import { icon } from "../../canvas/draw_icon.js";
import { HEADER_HEIGHT } from "../../layout/group_sizes_and_inner_positions.js";

export class Breadcrumbs {
  /**
   * @param {import("../../shared_view_state.js").Store} store
   * @param {(group: number) => void} zoomTo fits a group into the view
   */
  constructor(store, zoomTo) {
    this.store = store;
    this.zoomTo = zoomTo;
    this.element = h("nav", {
      class: "agv-breadcrumbs agv-float",
      attrs: { "aria-label": "Groups around the view" },
    });
    this.element.hidden = true;
    this.groups = "";
  }

  /**
   * Display the groups around the center of the view.
   *
   * @param {import("../../layout/coordinates.js").Placement} placement
   * @param {import("./camera.js").Rect} view
   */
  update({ boxes }, view) {
    const [x, y] = [view.x + view.w / 2, view.y + view.h / 2];
    const around = boxes.filter(
      (box) =>
        box.kind === "frame" &&
        box.x <= x &&
        x <= box.x + box.width &&
        box.y <= y &&
        y <= box.y + box.height,
    );
    const inner = around.at(-1);
    const hidden = inner && (inner.y < view.y || inner.x + HEADER_HEIGHT < view.x);
    const groups = hidden ? around.map((box) => box.ref) : [];
    if (groups.join() === this.groups) return;
    this.groups = groups.join();
    this.element.hidden = !groups.length;
    const parts = groups.flatMap((group) => [icon("right"), this.#breadcrumb(group)]);
    this.element.replaceChildren(...parts.slice(1));
  }

  /**
   * @param {number} group
   * @returns {HTMLElement}
   */
  #breadcrumb(group) {
    const { label } = this.store.scene.groups[group];
    const show = () => {
      this.store.set("selected", { kind: "group", index: group });
      this.zoomTo(group);
    };
    return button(`Zoom to ${label}`, "agv-link", show, label);
  }
}
