// @ts-check
/** The recorded source lines with what each costs, by itself and with what it calls. */

import { button, choice, h, listen } from "../../dom.js";
import { makeMarks } from "./audit_marks.js";
import { codeLine, functionsOf, linesToShow } from "./excerpt.js";
import { costCells, opener } from "./cost_rows.js";
import {
  COLUMNS,
  addCost,
  callCosts,
  ownCost,
  ownParts,
  placeKey,
  stackOf,
  timeOf,
} from "../../scene/source_line_costs.js";
import {
  formatBytes,
  formatDuration,
  formatPlace,
  plural,
} from "../../scene/format_numbers_and_names.js";
import { kindOfStorage } from "../../scene/saved_kind_colors.js";
import { linesOfFindings } from "../../scene/lines_of_findings.js";
import { timedSteps } from "../../scene/step_of_time_or_node.js";
import { isSavedIn } from "../../scene/storage_holds.js";
import { piecesOfKinds } from "../bar_of_kinds.js";
import { betweenOps, phaseTimes } from "../../scene/phase_times.js";
import { lineLink } from "../panels_and_tables.js";

/** @typedef {import("../../shared_view_state.js").Store} Store */
/** @typedef {import("../../scene/source_line_costs.js").Part} Part */
/** @typedef {import("../../scene/source_line_costs.js").CallCosts} CallCosts */
/** @typedef {"with calls" | "itself"} Mode */

/**
 * @typedef {object} CompilerNotes what torch.compile did with a line
 * @property {number} region index of the last compiled region that has it, -1 without one
 * @property {boolean} isCall whether it has the time of the region, whose lines have none
 * @property {string[]} breaks reasons of graph breaks
 * @property {string[]} guards guards that failed
 */

/**
 * @param {Store} store
 * @returns {HTMLElement}
 */
export function makeSource(store) {
  const scroller = h("div", { class: "agv-main agv-files", attrs: { tabindex: 0 } });
  /** @type {Mode} */
  let mode = "itself";
  const draw = () => {
    const page = new SourcePage(store, scroller, mode);
    page.draw();
    sentence.replaceChildren(...page.sentence());
  };
  const choose = (/** @type {string} */ name) => {
    mode = /** @type {Mode} */ (name);
    draw();
  };
  const modes = choice(["itself", "with calls"], mode, choose);
  const sentence = h("p", "agv-sentence");
  const head = h("div", "agv-view-head", sentence, modes);
  const body = h("div", "agv-source-page", head, scroller);
  store.subscribe(["step"], draw);
  store.subscribe(["selected", "matches"], () => markSelected(store, scroller));
  store.subscribe(["view", "line"], () => requestAnimationFrame(() => showLine(store, scroller)));
  draw();
  requestAnimationFrame(() => showLine(store, scroller));
  return body;
}

/**
 * Bring the chosen line into view, or else the one that is to blame or selected.
 *
 * @param {Store} store
 * @param {HTMLElement} scroller
 */
function showLine(store, scroller) {
  const key = store.line && placeKey(store.line);
  /** @type {NodeListOf<HTMLElement>} */
  const rows = scroller.querySelectorAll("[data-line]");
  if (key && ![...rows].some((row) => row.dataset["line"] === key)) {
    /** @type {NodeListOf<HTMLElement>} */
    const folded = scroller.querySelectorAll(".agv-source-run");
    for (const run of folded) run.click();
    if (folded.length) return showLine(store, scroller);
  }
  for (const row of rows) row.classList.toggle("agv-chosen-line", row.dataset["line"] === key);
  const line =
    scroller.querySelector(".agv-chosen-line") ??
    scroller.querySelector(".agv-culprit") ??
    scroller.querySelector(".agv-selected-line");
  if (store.view !== "source" || !line) return;
  line.closest("details")?.setAttribute("open", "");
  const top = line.getBoundingClientRect().top - scroller.getBoundingClientRect().top;
  scroller.scrollTop += top - scroller.clientHeight / 3;
}

/**
 * @param {Store} store
 * @param {HTMLElement} scroller
 */
function markSelected({ scene, related, matches }, scroller) {
  const keysOf = (/** @type {Iterable<number>} */ nodes) =>
    new Set([...nodes].map((node) => placeKey(scene.nodes[node])));
  const chosen = keysOf(related.nodes);
  const matched = keysOf(matches ?? []);
  /** @type {NodeListOf<HTMLElement>} */
  const rows = scroller.querySelectorAll("[data-line]");
  for (const row of rows) {
    row.classList.toggle("agv-selected-line", chosen.has(row.dataset["line"] ?? ""));
    row.classList.toggle("agv-match", matched.has(row.dataset["line"] ?? ""));
  }
}

class SourcePage {
  /**
   * @param {Store} store
   * @param {HTMLElement} scroller
   * @param {Mode} mode
   */
  constructor(store, scroller, mode) {
    this.store = store;
    this.scroller = scroller;
    this.mode = mode;
    this.costs = callCosts(store.scene, store.step);
    this.compiled = compilerNotes(store);
    this.found = linesOfFindings(store.scene);
    this.shared = sharedLines(store.scene);
    /** @type {Map<string, number[]>} */
    this.nodes = new Map();
    for (const { filename, lineno, index } of store.scene.nodes) {
      const key = placeKey({ filename, lineno });
      const same = this.nodes.get(key);
      if (same) same.push(index);
      else this.nodes.set(key, [index]);
    }
    this.kinds = this.#kindsOfLines();
    const whole = [...this.kinds.values()].map((kinds) => [...kinds.values()]);
    this.most = Math.max(1, ...whole.map((parts) => parts.reduce((sum, each) => sum + each, 0)));
    const times = [...this.costs.lines.values()].map((part) => timeOf(this.#costOf(part) ?? []));
    this.longest = Math.max(1, ...times);
    this.columns = [...COLUMNS, ...(this.compiled.size ? ["compiler"] : [])];
  }

  draw() {
    const { store, scroller } = this;
    const keyOf = (/** @type {string} */ filename, /** @type {number} */ lineno) =>
      placeKey({ filename, lineno });
    const made = makeMarks(store, keyOf, scroller);
    this.marks = made.marks;
    // Columns without a number take no room, nor does one that repeats another.
    const { total, unknown, lines } = this.costs;
    const repeats = [...lines.values()].every(({ cost: [saved, held] }) => saved === held);
    total.forEach((value, at) =>
      scroller.classList.toggle(
        `agv-without-${at}`,
        value + unknown[at] === 0 || (at === 1 && repeats && unknown[0] === unknown[1]),
      ),
    );
    const parts = this.#files();
    const known = store.scene.call_frames.length || parts.length;
    const none = "This recording has no source lines. record(model, stacks=True) records them.";
    scroller.replaceChildren(
      ...(made.legend ? [made.legend] : []),
      ...(known ? [h("div", "agv-source agv-source-wide agv-sticky", this.#head())] : []),
      ...(parts.length ? parts : [h("p", "agv-empty-text", none)]),
      ...(known ? [this.#totals()] : []),
    );
    markSelected(store, scroller);
  }

  /** @returns {Map<string, Map<string, number>>} bytes of each line, by kind */
  #kindsOfLines() {
    const { scene, step } = this.store;
    /** @type {Map<string, Map<string, number>>} */
    const lines = new Map();
    for (const each of scene.counted_storages) {
      if (!isSavedIn(scene, each, step)) continue;
      const stack = stackOf(scene, each.call).slice(0, this.mode === "itself" ? 1 : undefined);
      const kind = kindOfStorage(scene, each.storage_id);
      for (const key of new Set(stack.map(placeKey))) {
        const kinds = lines.get(key) ?? new Map();
        lines.set(key, kinds.set(kind, (kinds.get(kind) ?? 0) + each.nbytes));
      }
    }
    return lines;
  }

  /** @returns {(Node | string)[]} which line keeps most, and which takes most time */
  sentence() {
    const { scene, step } = this.store;
    const { steps, summary } = scene;
    const timed = summary.warm_up ? "; times without the warm-up" : "";
    const sums = `sums over ${summary.steps_text}${timed}; held at peak: at one time; `;
    const several = steps.length > 1 && step < 0;
    const tint = h("span", "agv-tint");
    const parts = ownParts(scene, this.costs).filter(({ filename }) => filename);
    const itself = this.mode === "itself" ? " " : " by itself ";
    const lead = (
      /** @type {string} */ text,
      /** @type {(cost: number[]) => number} */ of,
      /** @type {(value: number) => string} */ format,
    ) => {
      const [most] = parts.sort((a, b) => of(b.cost) - of(a.cost));
      return most && of(most.cost) ? [{ most, text: text + format(of(most.cost)) }] : [];
    };
    const leads = [
      ...lead("holds most at the peak, ", ([, held]) => held, formatBytes),
      ...lead("takes most time, ", timeOf, formatDuration),
    ];
    return [
      ...leads.flatMap(({ most, text }, at) =>
        at && leads[0].most === most
          ? [`, and ${text}`]
          : [at ? "; " : "", lineLink(this.store, most), itself + text],
      ),
      ...(leads.length
        ? [h("span", "agv-muted agv-sums", several && sums, tint, " share of bytes or time")]
        : []),
    ];
  }

  /** @returns {string} of which bytes the bars are */
  #barOfBytes() {
    const [saved, , recomputed] = this.costs.total;
    return [saved && "saved", recomputed && "recomputed"].filter(Boolean).join("/");
  }

  /** @returns {HTMLElement} the names of the columns */
  #head() {
    return h(
      "div",
      "agv-source-line agv-source-columns",
      h("span", "agv-source-number", "line"),
      this.marks?.size ? h("span", "agv-marks") : null,
      h("code", "", " "),
      h(
        "span",
        "agv-source-tag",
        ...this.columns.flatMap((text, at) => [
          ...(at === 0 || at === 3
            ? [h("span", "agv-source-bar", at ? "time" : this.#barOfBytes())]
            : []),
          h("span", `agv-cell agv-column-${at}`, text),
        ]),
      ),
    );
  }

  /** @returns {HTMLElement} what no line has, and the sums over all lines */
  #totals() {
    const { total, unknown } = this.costs;
    const { summary } = this.store.scene;
    const row = (/** @type {string} */ text, /** @type {number[]} */ cost) =>
      h(
        "div",
        "agv-source-line agv-source-total",
        h("code", "", text),
        h("span", "agv-source-tag", ...costCells(cost), ...this.#spare()),
      );
    const block = h("div", "agv-source agv-source-wide");
    if (unknown.some(Boolean)) block.append(row("without a recorded line", unknown));
    const { sceneIndex, step } = this.store;
    const timed = timedSteps(sceneIndex, step);
    const { active, phases } = phaseTimes(sceneIndex, timed.range, timed.step);
    const all = [...total];
    const rest = (
      /** @type {string} */ text,
      /** @type {(phase: import("../../scene/phase_times.js").PhaseTime) => number} */ of,
      again = 0,
    ) => {
      const cost = COLUMNS.map((column, at) =>
        phases.reduce(
          (sum, each) => sum + (each.name === column ? of(each) : 0),
          at === 5 ? again : 0,
        ),
      );
      addCost(all, cost);
      if (cost.some(Boolean)) block.append(row(text, cost));
    };
    const recomputed = phases.reduce((sum, each) => sum + each.recomputed, 0);
    rest("between ops", betweenOps, Math.max(0, recomputed - total[5]));
    rest("compiling", ({ compiled }) => compiled);
    block.append(row(`all · ${formatDuration(active)} active`, all));
    if (summary.older_nbytes) {
      const steps = plural(summary.older_steps, "step");
      const older = total.map((_, at) => (at === 1 ? summary.older_nbytes : 0));
      block.append(row(`${steps} no longer shown`, older));
    }
    return h("div", "agv-scroll", block);
  }

  /** @returns {HTMLElement[]} the cells of columns that only some rows have */
  #spare() {
    return this.compiled.size ? [h("span", "agv-cell")] : [];
  }

  /** @returns {HTMLElement[]} user files first, then those of packages, folded */
  #files() {
    const { store, costs } = this;
    const packages = new Set(
      store.scene.call_frames.flatMap((frame) => (frame.installed ? frame.filename : [])),
    );
    const costed = [...costs.lines.values()].filter((part) => this.#costOf(part)?.some(Boolean));
    const costly = new Set(costed.map(({ filename }) => filename));
    for (const each of store.scene.findings) costly.add(each.culprit_file).add(each.victim_file);
    const rank = (/** @type {string} */ file) => 2 * +packages.has(file) + +!costly.has(file);
    const files = [...store.sceneIndex.source]
      .filter(([file]) => file)
      .sort(([a], [b]) => rank(a) - rank(b));
    const own = files.some(([file]) => rank(file) === 0);
    return files.map(([file, lines]) => {
      const head = h("h3", { class: "agv-mono", text: formatPlace(file, 0), title: file });
      const body = h("div", "agv-scroll", this.#lines(file, lines));
      // A script that only starts the recording ran no op itself.
      if (!own || rank(file) === 0) return h("section", {}, h("div", "agv-view-head", head), body);
      return h("details", "agv-installed", h("summary", "agv-view-head", head), body);
    });
  }

  /** @param {Part | undefined} part */
  #costOf(part) {
    return part && (this.mode === "itself" ? ownCost(this.costs, part) : part.cost);
  }

  /**
   * @param {string} file
   * @param {Map<number, string>} lines
   * @returns {HTMLElement}
   */
  #lines(file, lines) {
    const partOf = (/** @type {number} */ lineno) =>
      this.costs.lines.get(placeKey({ filename: file, lineno }));
    const matters = (/** @type {number} */ lineno) => {
      const key = placeKey({ filename: file, lineno });
      const { line } = this.store;
      return (
        !!this.#costOf(partOf(lineno))?.some(Boolean) ||
        [this.nodes, this.marks, this.compiled, this.found].some((known) => known?.has(key)) ||
        (!!line && placeKey(line) === key)
      );
    };
    const numbers = functionsOf(lines, matters);
    const kept = linesToShow(lines, numbers, matters);
    const block = h("div", "agv-source agv-source-wide");
    const lineOf = (/** @type {number} */ number) =>
      this.#line(file, number, lines.get(number) ?? "", partOf(number));
    for (let at = 0; at < numbers.length; at++) {
      const number = numbers[at];
      if (at && number > numbers[at - 1] + 1) block.append(h("div", "agv-source-gap"));
      if (kept.has(number)) {
        block.append(lineOf(number));
        continue;
      }
      const run = [number];
      while (numbers[at + 1] === number + run.length && !kept.has(numbers[at + 1])) {
        run.push(numbers[++at]);
      }
      const text = `${plural(run.length, "line")} without numbers`;
      const open = () => more.replaceWith(...run.map(lineOf));
      const more = h("div", "agv-source-line", button(text, "agv-source-run", open, text));
      block.append(more);
    }
    return block;
  }

  /**
   * @param {string} file
   * @param {number} number
   * @param {string} text
   * @param {Part | undefined} part
   * @returns {HTMLElement}
   */
  #line(file, number, text, part) {
    const { store, costs } = this;
    const { nodes } = store.scene;
    const key = placeKey({ filename: file, lineno: number });
    const own = this.nodes.get(key) ?? [];
    const failed = own.some((node) => nodes[node].error || nodes[node].state === "failed");
    // A finding has one culprit and one victim; nodes are asked if none has a line.
    const writes = own.some((node) => nodes[node].writes);
    const role = this.found.size
      ? (this.found.get(key)?.tag ?? "")
      : writes
        ? "culprit"
        : failed
          ? "victim"
          : "";
    const isHint = !failed && this.found.get(key)?.hint;
    const cells = h("span", "agv-source-tag");
    const line = h(
      "div",
      `agv-source-line ${role && `agv-${role}`} ${isHint ? "agv-hint" : ""}`,
      h("span", "agv-source-number", String(number)),
      this.marks?.size ? h("span", "agv-marks", ...(this.marks.get(key) ?? [])) : null,
      codeLine(text, role),
      cells,
    );
    line.dataset["line"] = key;
    const itself = part ? ownCost(costs, part) : COLUMNS.map(() => 0);
    const cost = this.#costOf(part) ?? itself;
    const bytes = piecesOfKinds(store.scene, this.kinds.get(key) ?? new Map(), this.most);
    cells.append(...costCells(cost, itself, bytes, this.longest));
    const heat = Math.max((cost[0] + cost[2]) / this.most, timeOf(cost) / this.longest);
    line.style.setProperty("--heat", `${16 * Math.min(1, heat)}%`);
    const others = [...(this.shared.get(key) ?? [])]
      .sort((a, b) => a - b)
      .slice(0, 3)
      .join(", ");
    if (others && !bytes.length) {
      const at = this.scroller.classList.contains("agv-without-1") ? 0 : 1;
      const title = `counted at line ${others}`;
      cells
        .querySelector(`.agv-column-${at}`)
        ?.append(h("span", { class: "agv-muted", text: `in ${others}`, title }));
    }
    const opens = part && this.mode === "with calls" && opener(store, costs, line, cells, part, 1);
    if (opens) cells.prepend(opens);
    if (own.length) {
      listen(line, "click", (event) => {
        if (/** @type {Element} */ (event.target).closest("button")) return;
        store.set("selected", { kind: "node", index: own[0] });
      });
      const show = () => store.reveal({ kind: "node", index: own[0] });
      const count = /** @type {HTMLElement} */ (cells.children[cells.children.length - 1]);
      const text = count?.textContent;
      const label = `${text}: show line ${number} in the graph`;
      if (text) count.replaceChildren(button(label, "agv-link", show, text));
    }
    if (this.compiled.size) cells.append(compilerCell(store, this.compiled.get(key)));
    return line;
  }
}

/**
 * Return the lines of the same file where tensors are counted that other lines saved, too.
 *
 * @param {import("../../types.js").Scene} scene
 * @returns {Map<string, Set<number>>} by the key of the other line
 */
function sharedLines({ saved_badges, nodes, counted_storages }) {
  const places = new Map([...counted_storages].map((each) => [each.storage_id, each]));
  /** @type {Map<string, Set<number>>} */
  const lines = new Map();
  for (const { node, storage_id } of saved_badges) {
    const { filename = "", lineno = 0 } = places.get(storage_id ?? -1) ?? {};
    const user = nodes[node];
    if (!lineno || filename !== user.filename || lineno === user.lineno) continue;
    const key = placeKey(user);
    lines.set(key, (lines.get(key) ?? new Set()).add(lineno));
  }
  return lines;
}

/**
 * @param {Store} store
 * @returns {Map<string, CompilerNotes>} by the key of a place
 */
function compilerNotes({ scene }) {
  /** @type {Map<string, CompilerNotes>} */
  const notes = new Map();
  const noteOf = (/** @type {{filename: string, lineno: number}} */ place) => {
    const key = placeKey(place);
    const note = notes.get(key) ?? { region: -1, isCall: false, breaks: [], guards: [] };
    notes.set(key, note);
    return note;
  };
  for (const { picture, item } of scene.compiled_marks) {
    const place = scene.compiled_items[item];
    if (place?.lineno) noteOf(place).region = scene.compiled_pictures[picture].region;
  }
  for (const { index, nodes } of scene.compiled_regions) {
    for (const node of nodes)
      Object.assign(noteOf(scene.nodes[node]), { region: index, isCall: true });
  }
  for (const step of scene.compiled_steps) {
    if (step.kind === "break") noteOf(step).breaks.push(step.title);
    if (step.kind === "recompile") noteOf(step).guards.push(step.title);
  }
  return notes;
}

/**
 * @param {Store} store
 * @param {CompilerNotes | undefined} note
 * @returns {HTMLElement}
 */
function compilerCell(store, note) {
  if (note?.breaks.length) {
    return h("span", {
      class: "agv-cell agv-broken",
      text: "graph break",
      title: note.breaks.join("\n"),
    });
  }
  if (note?.guards.length) {
    const text = note.guards.length > 1 ? `recompiled ×${note.guards.length}` : "recompiled";
    return h("span", { class: "agv-cell agv-recompute", text, title: note.guards.join("\n") });
  }
  if (!note || note.region < 0) return h("span", "agv-cell");
  const show = () => store.showCompiled(note.region);
  const { name } = store.scene.compiled_regions[note.region];
  return button(`Show ${name}`, "agv-link", show, note.isCall ? "region" : "compiled");
}
