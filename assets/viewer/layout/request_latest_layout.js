// @ts-check
/** Requests layouts and passes on the latest one. */

import { LayoutWorker } from "./worker.js";

/** @typedef {import("./coordinates.js").Placement} Placement */

/** @type {Placement} before the first layout */
export const EMPTY_PLACEMENT = { width: 0, height: 0, boxes: [], lines: [] };

export class LayoutScheduler {
  /** Number of the last request; the results of earlier ones are dropped. */
  #request = 0;
  #pending = false;
  /** @type {(() => void)[]} */
  #actions = [];
  #worker;
  #show;
  #setBusy;

  /**
   * @param {import("../types.js").Scene} scene
   * @param {(placement: Placement) => void} show called with each layout
   * @param {(busy: boolean) => void} setBusy called when a layout takes longer than a frame
   */
  constructor(scene, show, setBusy) {
    this.#worker = new LayoutWorker(scene);
    this.#show = show;
    this.#setBusy = setBusy;
  }

  /** @param {Set<number>} open groups */
  layOut(open) {
    const request = ++this.#request;
    const placed = this.#worker.place(open);
    if (!(placed instanceof Promise)) return this.#finish(placed);
    this.#pending = true;
    this.#setBusy(true);
    placed.then((placement) => request === this.#request && this.#finish(placement));
  }

  /** @param {Placement} placement */
  #finish(placement) {
    this.#pending = false;
    this.#setBusy(false);
    this.#show(placement);
    for (const act of this.#actions.splice(0)) act();
  }

  /** @param {() => void} act called now, or after the pending layout */
  whenPlaced(act) {
    if (this.#pending) this.#actions.push(act);
    else act();
  }

  destroy() {
    this.#request++;
    this.#worker.destroy();
  }
}
