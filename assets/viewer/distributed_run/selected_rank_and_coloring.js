// @ts-check
/** The reader's choices, which rank and which coloring, and the views that draw them. */

/** @typedef {"differences" | "time" | "first" | "saved" | "gradient" | "loss"} Mode */

export class RunState {
  /** @param {import("./types.js").RunScene} scene */
  constructor(scene) {
    this.scene = scene;
    /** @type {number} index of the selected row, -1 for none */
    this.row = -1;
    /** @type {Mode} */
    this.mode = "differences";
    /** @type {(() => void)[]} */
    this.listeners = [];
    /** @type {Map<number, number>} */
    this.rowOf = new Map(scene.ranks.map(({ rank }, row) => [rank, row]));
  }

  /** @param {number} rank -1 for none */
  selectRank(rank) {
    this.select(this.rowOf.get(rank) ?? -1);
  }

  /** @param {number} row */
  select(row) {
    if (row === this.row) return;
    this.row = row;
    this.#changed();
  }

  /** @param {Mode} mode */
  color(mode) {
    this.mode = mode;
    this.#changed();
  }

  #changed() {
    for (const listener of this.listeners) listener();
  }
}
