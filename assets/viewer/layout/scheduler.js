// @ts-check
/** Asks for layouts, and hands over the last one that was asked for. */

import { h } from "../dom.js";
import { Layouter } from "./worker.js";

/** @typedef {import("./coordinates.js").Placement} Placement */

/** @type {Placement} before the first layout */
export const NOTHING = { width: 0, height: 0, boxes: [], lines: [] };

export class Arranger {
  /** Counts layouts: one that comes after a later one was asked for is dropped. */
  #turn = 0;
  #placing = false;
  /** @type {(() => void)[]} what waits for the layout */
  #waiting = [];

  /**
   * @param {import("../types.js").Scene} scene
   * @param {(placement: Placement) => void} show
   */
  constructor(scene, show) {
    this.layouter = new Layouter(scene);
    this.show = show;
    this.element = h("div", {
      class: "agv-busy agv-float",
      attrs: { role: "status" },
      text: "Laying out…",
    });
    this.element.hidden = true;
  }

  /** @param {Set<number>} open until this is laid out, the picture stays as it is */
  arrange(open) {
    const turn = ++this.#turn;
    const placed = this.layouter.place(open);
    if (!(placed instanceof Promise)) return this.#finish(placed);
    this.#placing = true;
    this.element.hidden = false;
    placed.then((placement) => turn === this.#turn && this.#finish(placement));
  }

  /** @param {Placement} placement */
  #finish(placement) {
    this.#placing = false;
    this.element.hidden = true;
    this.show(placement);
    for (const act of this.#waiting.splice(0)) act();
  }

  /** @param {() => void} act now, or once the layout is there */
  whenPlaced(act) {
    if (this.#placing) this.#waiting.push(act);
    else act();
  }

  destroy() {
    this.#turn++;
    this.layouter.destroy();
  }
}
