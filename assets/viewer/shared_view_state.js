// @ts-check
/** The state that all views share: what is selected, opened and displayed. */

import { largestFold } from "./scene/bytes_of_ribbons_and_folds.js";
import { groupsAround, relatedTo } from "./scene/scene_index.js";
import { findGradientPath } from "./scene/gradient_path.js";
import { stepAt, stepOfNode } from "./scene/step_of_time_or_node.js";

/** @typedef {{kind: "node" | "group" | "storage", index: number}} Item */
/** @typedef {"after hooks" | "before hooks"} SavedForm */

/**
 * @typedef {object} State
 * @property {Item | null} selected
 * @property {string} view name of the view on display
 * @property {number} finding index of the finding on display, -1 without findings
 * @property {number} region index of the checkpoint region on display, -1 without regions
 * @property {number} compiled index of the compiled region on display, -1 without one
 * @property {number | null} time replayed, in nanoseconds; null is the end of the recording
 * @property {import("./scene/graph_colorings.js").ColorBy} colorBy
 * @property {SavedForm} savedForm of the values in compiled regions that inlined hooks pack
 * @property {import("./scene/gradient_path.js").GradientPath | null} gradientPath highlighted
 * @property {number} entry index of the audit entry on display, -1 if it is a finding
 * @property {{filename: string, lineno: number} | null} line on display in the source view
 * @property {number} plan index of the budget plan on display, -1 for the step as it is
 * @property {Set<number> | null} matches nodes that the search found, marked in all views
 * @property {number} step index of the step that all views show, -1 for all steps
 */

/** @typedef {import("./types.js").SceneCauseStep} Step */

/**
 * An answer, or the lines of an audit entry. The steps of an answer of Python are in place.
 *
 * @typedef {Omit<import("./types.js").SceneAnswer, "steps"> & {steps: (number | Step)[], isStory?: boolean}} Trail
 */

/** @typedef {(isBefore: boolean, node: number) => unknown} OpenRecording */

/** @typedef {keyof State | "open" | "reveal" | "focus" | "trail" | "station"} Change */

/**
 * @param {Item | null} a
 * @param {Item | null} b
 * @returns {boolean}
 */
export function sameItem(a, b) {
  return a === b || (!!a && !!b && a.kind === b.kind && a.index === b.index);
}

/** @implements {State} */
export class Store {
  /** @type {[changes: Change[], listener: (change: Change) => void][]} */
  #subscriptions = [];
  #views;

  /**
   * @param {import("./scene/scene_index.js").SceneIndex} sceneIndex
   * @param {import("./views/registry.js").View[]} views the first that exists is displayed first
   */
  constructor(sceneIndex, views) {
    this.sceneIndex = sceneIndex;
    this.scene = sceneIndex.scene;
    this.#views = views;
    /** @type {() => Promise<import("./types.js").Scene | null>} the other one of two */
    this.otherScene = async () => null;
    /** @type {OpenRecording} displays one of two recordings that are compared */
    this.openRecording = () => {};
    /** @type {Set<number>} indices of the open groups; change it with `toggle` and `reveal` */
    this.open = new Set(this.scene.groups.filter((g) => g.open || !g.index).map((g) => g.index));
    /** @type {Item | null} the group that was opened or closed last: it keeps its place */
    this.anchor = null;
    /** @type {Item | null} */
    this.selected = null;
    this.related = relatedTo(sceneIndex, null);
    /** Index of the group that the graph shows whole, -1 before any. */
    this.focused = -1;
    const isFirst = (/** @type {import("./views/registry.js").View} */ { part, exists }) =>
      (!part || this.scene.summary.fold_first) && exists?.(this.scene) !== false;
    this.view = (views.find(isFirst) ?? views[0]).name;
    this.finding = this.scene.findings.length ? 0 : -1;
    this.region = initialRegion(this.scene);
    this.compiled = this.scene.compiled_regions.length - 1;
    /** @type {State["time"]} */
    this.time = null;
    /** @type {State["colorBy"]} */
    this.colorBy = "kind";
    /** @type {SavedForm} */
    this.savedForm = "after hooks";
    /** @type {State["gradientPath"]} */
    this.gradientPath = null;
    /** @type {Partial<Trail> | null} */
    this.trail = null;
    /** @type {Step[]} */
    this.stations = [];
    /** @type {Step[]} without the alternatives */
    this.proven = [];
    this.station = 0;
    this.entry = -1;
    /** @type {State["line"]} */
    this.line = null;
    this.step = -1;
    /** Index of the step that is replayed, -1 without a time. */
    this.replayed = -1;
    this.plan = -1;
    /** @type {State["matches"]} */
    this.matches = null;
    /** True in a report: nothing else is on the page, which then need not scroll. */
    this.isAlone = false;
    /** @type {(() => void) | null} makes a viewer of a single view as large as others */
    this.grow = null;
    /** @type {((subject: string) => void) | null} asks Python, if it is there */
    this.askHost = null;
  }

  /**
   * @param {string} name
   * @returns {boolean} whether there is such a view
   */
  hasView(name) {
    return this.#views.some((view) => view.name === name);
  }

  /**
   * Call a function after each of the listed changes.
   *
   * @param {Change[]} changes
   * @param {(change: Change) => void} listener
   */
  subscribe(changes, listener) {
    this.#subscriptions.push([changes, listener]);
  }

  /** @param {Change} change */
  #emit(change) {
    for (const [changes, listener] of this.#subscriptions) {
      if (changes.includes(change)) listener(change);
    }
  }

  /**
   * Change one part of the state and notify its subscribers.
   *
   * @template {keyof State} Key
   * @param {Key} key
   * @param {State[Key]} value
   * @returns {boolean} whether the value is a new one
   */
  set(key, value) {
    const state = /** @type {State} */ (this);
    const old = state[key];
    if (value === old) return false;
    if (key === "selected" && sameItem(this.selected, /** @type {Item | null} */ (value))) {
      return false;
    }
    state[key] = value;
    if (key === "selected") this.#follow();
    if (key === "time") this.#followTime();
    this.#emit(key);
    return true;
  }

  /** Open the step that is replayed, and choose it if one is chosen. */
  #followTime() {
    const { scene, time, replayed } = this;
    this.replayed = time === null || !scene.steps[1] ? -1 : stepAt(scene, time);
    if (this.replayed < 0 || this.replayed === replayed) return;
    if (this.step >= 0) this.set("step", this.replayed);
    this.#openStep(this.replayed);
  }

  /** Compute what a new selection consists of; show its finding and region in their views. */
  #follow() {
    const { selected, scene, sceneIndex } = this;
    this.related = relatedTo(sceneIndex, selected);
    if (selected?.kind !== "node") return;
    const found = sceneIndex.findings[selected.index];
    if (found.length && !found.includes(this.finding)) this.set("finding", found[0]);
    const { region } = scene.nodes[selected.index];
    if (region >= 0) this.set("region", region);
    if (this.step >= 0) this.set("step", stepOfNode(scene, scene.nodes[selected.index]));
  }

  /**
   * Open or close a group.
   *
   * @param {number} group
   * @param {boolean} [open] the opposite of the current state by default
   */
  toggle(group, open = !this.open.has(group)) {
    if (group === 0 || open === this.open.has(group)) return;
    if (open) this.open.add(group);
    else this.open.delete(group);
    this.anchor = { kind: "group", index: group };
    if (!open) this.#selectVisible(group);
    this.#emit("open");
  }

  /**
   * Move a selection inside a group that closed to the group.
   *
   * @param {number} group
   */
  #selectVisible(group) {
    if (!this.selected) return;
    const { kind, index } = this.selected;
    if (kind === "storage") return;
    const inside = kind === "node" ? this.scene.nodes[index].group : index;
    if (index === group && kind === "group") return;
    if (inside === group || groupsAround(this.sceneIndex, inside).includes(group)) {
      this.set("selected", { kind: "group", index: group });
    }
  }

  /**
   * Display the view that shows a kind of thing.
   *
   * @param {import("./views/registry.js").Shown} kind
   */
  #show(kind) {
    const view = this.#views.find(({ shows }) => shows?.includes(kind));
    if (view) this.set("view", view.name);
  }

  /**
   * Display an item: open the groups around it, select it and scroll to it.
   *
   * @param {Item} item
   */
  reveal(item) {
    if (item.kind !== "storage") this.#openAround(item);
    this.#show(item.kind);
    this.set("selected", item);
    this.#emit("reveal");
  }

  /** @param {Item} item a node or a group */
  #openAround({ kind, index }) {
    const group = kind === "node" ? this.scene.nodes[index].group : index;
    const around = groupsAround(this.sceneIndex, group);
    if (kind === "node" && group > 0) around.push(group);
    const closed = around.filter((g) => !this.open.has(g));
    for (const g of closed) this.open.add(g);
    this.anchor = null;
    if (closed.length) this.#emit("open");
  }

  /**
   * Open a group and fill the view with it.
   *
   * @param {number} group
   */
  focusGroup(group) {
    this.reveal({ kind: "group", index: group });
    this.toggle(group, true);
    this.focused = group;
    this.#emit("focus");
  }

  /**
   * Show one step in all views.
   *
   * @param {number} step its index, -1 for all steps
   */
  showStep(step) {
    const { regions } = this.scene;
    const own = regions.findIndex((each) => each.step === step);
    if (own >= 0 && regions[this.region].step !== step) this.set("region", own);
    if (this.set("step", step) && step >= 0) this.#openStep(step);
  }

  /**
   * Open a step in the graph instead of the others.
   *
   * @param {number} step its index
   */
  #openStep(step) {
    const { groups, steps } = this.scene;
    if (!steps[step]) return;
    const label = `step ${steps[step].number}`;
    const group = groups.findIndex((each) => each.kind === "step" && each.label === label);
    if (group < 0) return;
    this.#openAround({ kind: "group", index: group });
    this.#openInsteadOfOthers(group);
    this.focused = group;
    this.#emit("focus");
  }

  /**
   * Close the other steps, and open in one what was open in them.
   *
   * @param {number} step a group
   */
  #openInsteadOfOthers(step) {
    const { groups } = this.scene;
    const others = [...this.open].filter((at) => at !== step && groups[at].kind === "step");
    const nameOf = (/** @type {number} */ at) =>
      `${groups[at].kind} ${groups[at].path} ${groups[at].label}`;
    const isIn = (/** @type {number} */ at, /** @type {number[]} */ around) =>
      groupsAround(this.sceneIndex, at).some((each) => around.includes(each));
    const inside = [...this.open].filter((at) => isIn(at, others));
    const names = new Set(inside.map(nameOf));
    for (const at of [...others, ...inside]) this.open.delete(at);
    this.open.add(step);
    for (const { index } of groups) {
      if (names.has(nameOf(index)) && isIn(index, [step])) this.open.add(index);
    }
    this.anchor = null;
    this.#emit("open");
  }

  /**
   * Display a finding.
   *
   * @param {number} finding
   */
  showFinding(finding) {
    this.set("entry", -1);
    this.set("finding", finding);
    this.#show("finding");
  }

  /**
   * Display a checkpoint region.
   *
   * @param {number} region
   */
  showRegion(region) {
    this.set("region", region);
    this.#show("region");
  }

  /**
   * Display a compiled region.
   *
   * @param {number} region
   */
  showCompiled(region) {
    this.set("compiled", region);
    this.#show("compiled");
  }

  /**
   * Display a line in the source view.
   *
   * @param {string} filename
   * @param {number} lineno
   */
  showLine(filename, lineno) {
    this.set("line", { filename, lineno });
    this.#show("line");
  }

  /**
   * Display why something is as it is. What the scene does not hold, Python is asked.
   *
   * @param {string} subject as in `SceneAnswer`
   * @param {string} target
   */
  ask(subject, target) {
    const found = this.scene.answers.find((each) => each.subject === subject);
    const [kind, index] = subject.split(" ");
    const { nodes, storages } = this.scene;
    const name = kind === "storage" ? `s${storages[+index].storage_id}` : target;
    const call = `trace.why(${kind === "node" ? nodes[+index].node_id : `"${name}"`})`;
    const question = this.askHost
      ? "Asking Python"
      : `This file does not hold the answer. In Python, ${call} does.`;
    this.showTrail(found ?? { subject, target, question, steps: [], alternatives: 0 });
    if (!found) this.askHost?.(subject);
  }

  /**
   * Display what happened, in order: each step also sets the time.
   *
   * @param {number} finding
   */
  tell(finding) {
    const found = this.scene.stories.find((each) => each.finding === finding);
    const target = this.scene.findings[finding].title;
    const question = "What happened, in order; ↓ goes on";
    if (found) this.showTrail({ steps: found.steps, target, question, isStory: true });
  }

  /**
   * Display an answer or an audit entry on the graph, the first step selected.
   *
   * @param {Partial<Trail> | null} trail
   */
  showTrail(trail) {
    if (trail) this.#show("node");
    this.setTrail(trail);
    if (trail) this.goTo(0);
  }

  /** @param {Partial<Trail> | null} trail */
  setTrail(trail) {
    const { cause_steps } = this.scene;
    if (this.trail?.isStory) this.set("time", null);
    this.trail = trail;
    this.station = 0;
    /** @type {Step[]} */
    this.stations = (trail?.steps ?? []).map((at) =>
      typeof at === "number" ? cause_steps[at] : at,
    );
    this.proven = this.stations.slice(0, this.stations.length - (trail?.alternatives ?? 0));
    this.set("gradientPath", null);
    this.#emit("trail");
  }

  /**
   * Display a step of the trail, and the path from the loss to it.
   *
   * @param {number} station
   */
  goTo(station) {
    this.station = station;
    const { nodes, filename, lineno, time_ns } = this.stations[station] ?? { nodes: [] };
    if (this.trail?.isStory) this.set("time", time_ns < 0 ? null : time_ns);
    if (lineno) this.set("line", { filename: filename ?? "", lineno });
    const [index] = nodes;
    if (index !== undefined) {
      this.reveal({ kind: "node", index });
      this.set("gradientPath", findGradientPath(this.sceneIndex, { kind: "node", index }));
    } else if (!this.trail?.subject?.startsWith("node")) this.set("selected", null);
    this.#emit("station");
  }

  /**
   * Choose an audit entry and select its first node, in whatever view is on display.
   *
   * @param {number} entry
   */
  chooseEntry(entry) {
    this.set("entry", entry);
    const { word, meaning, steps } = this.scene.audit_entries[entry];
    this.setTrail({ target: word, question: meaning, steps, alternatives: steps.length - 1 });
    const index = this.stations[0].nodes[0];
    if (index !== undefined) this.set("selected", { kind: "node", index });
  }

  /**
   * Display an audit entry.
   *
   * @param {number} entry
   */
  showEntry(entry) {
    this.chooseEntry(entry);
    this.#show("finding");
  }

  /**
   * @param {number} node
   * @returns {number} index of the compiled region that a node runs, -1 for an eager node
   */
  compiledRegionOf(node) {
    return this.scene.compiled_regions.findIndex(({ nodes }) => nodes.includes(node));
  }

  /**
   * Choose a finding and select its first node, in whatever view is on display.
   *
   * @param {number} finding
   */
  chooseFinding(finding) {
    this.set("entry", -1);
    this.set("finding", finding);
    const node = this.scene.findings[finding].nodes[0];
    if (node !== undefined) this.set("selected", { kind: "node", index: node });
  }

  nextFinding() {
    const count = this.scene.findings.length;
    if (count) this.chooseFinding((this.finding + 1) % count);
  }
}

/**
 * Return the region to display first: one with a finding, or else one whose recomputation differs,
 * or else one of the step with the highest peak, or else any that was recomputed.
 *
 * @param {import("./types.js").Scene} scene
 * @returns {number} -1 without regions
 */
export function initialRegion(scene) {
  const found = scene.findings.find((finding) => finding.region >= 0);
  if (found) return found.region;
  const differs = scene.diffs.find((row) => row.status !== "same" && row.status !== "not_rerun");
  const peak = scene.folds[largestFold(scene)]?.step;
  const ofPeak = scene.diffs.find((row) => scene.regions[row.region].step === peak);
  const any = differs ?? ofPeak ?? scene.diffs[0];
  return any ? any.region : scene.regions.length - 1;
}
