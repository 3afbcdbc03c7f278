// @ts-check
/** Which open groups we are in, where the innermost one's header is out of view. */

import { button, h } from "../../dom.js";
import { icon } from "../../canvas/icons.js";
import { HEADER_HEIGHT } from "../../layout/sizes.js";

export class Crumbs {
  /**
   * @param {import("../../store.js").Store} store
   * @param {(group: number) => void} look at a group
   */
  constructor(store, look) {
    this.store = store;
    this.look = look;
    this.element = h("nav", {
      class: "agv-crumbs agv-float",
      attrs: { "aria-label": "Groups around the view" },
    });
    this.element.hidden = true;
    this.shown = "";
  }

  /**
   * Say where the view's middle is.
   *
   * @param {import("../../layout/coordinates.js").Placement} placement
   * @param {import("./camera.js").Rect} view
   */
  mark({ boxes }, view) {
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
    if (groups.join() === this.shown) return;
    this.shown = groups.join();
    this.element.hidden = !groups.length;
    const parts = groups.flatMap((group) => [icon("right"), this.#crumb(group)]);
    this.element.replaceChildren(...parts.slice(1));
  }

  /**
   * @param {number} group
   * @returns {HTMLElement}
   */
  #crumb(group) {
    const { label } = this.store.scene.groups[group];
    const go = () => {
      this.store.select({ kind: "group", index: group });
      this.look(group);
    };
    return button(`Look at ${label}`, "agv-link", go, label);
  }
}
