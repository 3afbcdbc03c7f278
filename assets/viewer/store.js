// @ts-check
/** What the reader chose: the one state that all views share. */

import { groupsAround } from "./scene/scene_index.js";

/** @typedef {{kind: "node" | "group" | "storage", index: number}} Item */
/** @typedef {"graph" | "timeline" | "tensors" | "checkpoint" | "findings" | "source"} ViewName */
/** @typedef {"open" | "selected" | "view" | "finding" | "region" | "reveal" | "time" | "axis" | "look" | "path"} Change */
/** @typedef {"both" | "forward" | "backward"} Half */

/**
 * @param {Item | null} a
 * @param {Item | null} b
 * @returns {boolean}
 */
export function sameItem(a, b) {
  return a === b || (!!a && !!b && a.kind === b.kind && a.index === b.index);
}

export class Store {
  /** @type {((change: Change) => void)[]} */
  #listeners = [];

  /** @param {import("./scene/scene_index.js").Atlas} atlas */
  constructor(atlas) {
    this.atlas = atlas;
    this.scene = atlas.scene;
    /** @type {Set<number>} */
    this.open = new Set(this.scene.groups.filter((g) => g.open || !g.index).map((g) => g.index));
    /** @type {Item | null} */
    this.selected = null;
    /** @type {Item | null} the group that was opened or closed last: it keeps its place */
    this.anchor = null;
    /** @type {ViewName} */
    this.view = "graph";
    this.finding = this.scene.findings.length ? 0 : -1;
    this.region = firstRegion(this.scene);
    /** @type {number | null} nanoseconds; null shows how everything ended */
    this.time = null;
    /** @type {import("./scene/time_axis.js").Axis} */
    this.axis = "time";
    /** @type {import("./scene/colors.js").Colour} */
    this.colour = "kind";
    /** @type {Half} which halves of the nodes show */
    this.half = "both";
    /** @type {import("./scene/gradient_path.js").Route | null} the way from the loss that is lit */
    this.route = null;
  }

  /** @param {(change: Change) => void} listener */
  subscribe(listener) {
    this.#listeners.push(listener);
  }

  /** @param {Change} change */
  #tell(change) {
    for (const listener of this.#listeners) listener(change);
  }

  /** @param {Item | null} item */
  select(item) {
    if (sameItem(item, this.selected)) return;
    this.selected = item;
    this.#tell("selected");
  }

  /**
   * Open or close a group.
   *
   * @param {number} group
   * @param {boolean} [open] the other way round when left out
   */
  toggle(group, open = !this.open.has(group)) {
    if (group === 0 || open === this.open.has(group)) return;
    if (open) this.open.add(group);
    else this.open.delete(group);
    this.anchor = { kind: "group", index: group };
    if (!open) this.#selectVisible(group);
    this.#tell("open");
  }

  /**
   * A selection inside a group that closed moves to the group.
   *
   * @param {number} group
   */
  #selectVisible(group) {
    if (!this.selected) return;
    const { kind, index } = this.selected;
    if (kind === "storage") return;
    const inside = kind === "node" ? this.scene.nodes[index].group : index;
    if (index === group && kind === "group") return;
    if (inside === group || groupsAround(this.atlas, inside).includes(group)) {
      this.select({ kind: "group", index: group });
    }
  }

  /**
   * Open the way to an item, select it and bring it into view.
   *
   * @param {Item} item
   */
  reveal(item) {
    if (item.kind === "storage") {
      this.show("tensors");
      this.select(item);
      this.#tell("reveal");
      return;
    }
    const group = item.kind === "node" ? this.scene.nodes[item.index].group : item.index;
    const way = groupsAround(this.atlas, group);
    if (item.kind === "node" && group > 0) way.push(group);
    const closed = way.filter((g) => !this.open.has(g));
    for (const g of closed) this.open.add(g);
    this.anchor = null;
    if (closed.length) this.#tell("open");
    this.show("graph");
    this.select(item);
    this.#tell("reveal");
  }

  /**
   * Show how everything stood at a time.
   *
   * @param {number | null} time null: at the end
   */
  setTime(time) {
    if (time === this.time) return;
    this.time = time;
    this.#tell("time");
  }

  /** @param {import("./scene/time_axis.js").Axis} axis */
  layOut(axis) {
    if (axis === this.axis) return;
    this.axis = axis;
    this.#tell("axis");
  }

  /** @param {import("./scene/colors.js").Colour} colour */
  colourBy(colour) {
    if (colour === this.colour) return;
    this.colour = colour;
    this.#tell("look");
  }

  /** @param {Half} half */
  showHalf(half) {
    if (half === this.half) return;
    this.half = half;
    this.#tell("look");
  }

  /**
   * Light a way through the graph.
   *
   * @param {import("./scene/gradient_path.js").Route | null} route
   * @returns {boolean} whether anything changed
   */
  showRoute(route) {
    if (!route && !this.route) return false;
    this.route = route;
    this.#tell("path");
    return true;
  }

  /** @param {ViewName} view */
  show(view) {
    if (view === this.view) return;
    this.view = view;
    this.#tell("view");
  }

  /** @param {number} finding */
  showFinding(finding) {
    if (finding === this.finding) return;
    this.finding = finding;
    this.#tell("finding");
  }

  /** @param {number} region */
  showRegion(region) {
    if (region === this.region) return;
    this.region = region;
    this.#tell("region");
  }
}

/**
 * The region to show first: one of a finding, else one whose recomputation differs, else any
 * that ran again.
 *
 * @param {import("./types.js").Scene} scene
 * @returns {number} -1 without regions
 */
function firstRegion(scene) {
  const found = scene.findings.find((finding) => finding.region >= 0);
  if (found) return found.region;
  const differs = scene.diffs.find((row) => row.status !== "same" && row.status !== "not_rerun");
  const any = differs ?? scene.diffs[0];
  return any ? any.region : scene.regions.length - 1;
}
