// @ts-check
/** The panes of the views, of which one is displayed. */

import { pagePicture } from "../canvas/html_elements_as_picture.js";
import { h } from "../dom.js";

/** @typedef {import("../shared_view_state.js").Store} Store */
/** @typedef {import("../views/registry.js").View} View */
/** @typedef {import("../views/registry.js").MountedView} MountedView */

export class ViewPanes {
  #views;
  #store;
  #palette;
  /** @type {Map<string, MountedView>} */
  #mounted = new Map();

  /**
   * @param {View[]} views
   * @param {Store} store
   * @param {() => import("../canvas/theme.js").Palette} palette
   */
  constructor(views, store, palette) {
    this.#views = views;
    this.#store = store;
    this.#palette = palette;
    this.elements = views.map(({ name }) => h("div", `agv-pane agv-pane-${name}`));
    store.subscribe(["view"], () => this.#show());
    this.#show();
  }

  /** Display one pane. A view is mounted when it is displayed for the first time. */
  #show() {
    this.#views.forEach(({ name, mount, waitsFor }, at) => {
      const pane = this.elements[at];
      pane.hidden = name !== this.#store.view;
      if (pane.hidden || this.#mounted.has(name)) return;
      const decode = waitsFor?.(this.#store.scene);
      if (decode) {
        decode().then(() => this.#show());
        return;
      }
      const mounted = mount(this.#store, this.#palette);
      this.#mounted.set(name, mounted);
      pane.append(...mounted.elements.filter((element) => element !== null));
    });
  }

  /** @returns {MountedView | undefined} the view on display, once it has what it waits for */
  get current() {
    return this.#mounted.get(this.#store.view);
  }

  /** @returns {import("../views/registry.js").Picture} of the view on display */
  picture() {
    const pane = this.elements.find((element) => !element.hidden) ?? this.elements[0];
    return this.current?.picture?.() ?? pagePicture(pane, this.#palette());
  }

  redraw() {
    for (const view of this.#mounted.values()) view.redraw?.();
  }

  destroy() {
    for (const view of this.#mounted.values()) view.destroy?.();
  }
}
