// @ts-check
/** Places the graph for changing sets of open groups; caches what did not change. */

import { place } from "./coordinates.js";

/** @typedef {import("./coordinates.js").Placement} Placement */
/** @typedef {import("../types.js").Scene} Scene */

export class LayoutCache {
  /** @type {Map<number, import("./open_group_geometry.js").GroupGeometry>} */
  #geometries = new Map();
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
    this.#discardChanged(open);
    return place(this.scene, open, this.#geometries);
  }

  /**
   * Estimate the work of placing a set of open groups, in measured cells.
   *
   * @param {Set<number>} open
   * @returns {number}
   */
  work(open) {
    this.#discardChanged(open);
    let work = 0;
    const waiting = [0];
    for (let at = waiting.pop(); at !== undefined; at = waiting.pop()) {
      const { cells } = this.scene.groups[at];
      work += cells.length * (this.#geometries.has(at) ? 0.2 : 1);
      for (const { kind, ref } of cells) if (kind === "group" && open.has(ref)) waiting.push(ref);
    }
    return work;
  }

  /**
   * Discard the geometry of groups that opened or closed, and of those around them.
   *
   * @param {Set<number>} open
   */
  #discardChanged(open) {
    const changed = [...open].filter((group) => !this.#open.has(group));
    for (const group of this.#open) if (!open.has(group)) changed.push(group);
    for (const group of changed) {
      for (let at = group; at >= 0; at = this.scene.groups[at].parent) this.#geometries.delete(at);
    }
    this.#open = new Set(open);
  }
}
