// @ts-check
/** Places the graph again and again; what did not change is not measured again. */

import { place } from "./coordinates.js";

/** @typedef {import("./coordinates.js").Placement} Placement */
/** @typedef {import("../types.js").Scene} Scene */

export class Placer {
  /** @type {Map<number, import("./group_geometry.js").Sheet>} */
  #sheets = new Map();
  /** @type {Set<number>} */
  #open = new Set();

  /** @param {Scene} scene */
  constructor(scene) {
    this.scene = scene;
  }

  /**
   * @param {Set<number>} open
   * @returns {Placement}
   */
  place(open) {
    this.#forget(open);
    return place(this.scene, open, this.#sheets);
  }

  /**
   * How much is to be done for a set of open groups: cells to measure, and to put in their places.
   *
   * @param {Set<number>} open
   * @returns {number}
   */
  work(open) {
    this.#forget(open);
    let work = 0;
    const waiting = [0];
    for (let at = waiting.pop(); at !== undefined; at = waiting.pop()) {
      const { cells } = this.scene.groups[at];
      work += cells.length * (this.#sheets.has(at) ? 0.2 : 1);
      for (const { kind, ref } of cells) if (kind === "group" && open.has(ref)) waiting.push(ref);
    }
    return work;
  }

  /**
   * Forget the groups that opened or closed, and those around them.
   *
   * @param {Set<number>} open
   */
  #forget(open) {
    const changed = [...open].filter((group) => !this.#open.has(group));
    for (const group of this.#open) if (!open.has(group)) changed.push(group);
    for (const group of changed) {
      for (let at = group; at >= 0; at = this.scene.groups[at].parent) this.#sheets.delete(at);
    }
    this.#open = new Set(open);
  }
}
