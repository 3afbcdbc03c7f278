// @ts-check
/** The findings, other lines of the audit, and the one on display: its fix, source and reasons. */

import { button, h, listHead, onArrows } from "../../dom.js";
import { Lifelines } from "../tensors/lifelines.js";
import { GraphAroundFinding } from "../graph/graph_around_finding.js";
import { block, excerpts, explanationOf, findingSource, fixBlock } from "./finding_sections.js";
import { factRows } from "../../shell/facts_with_view_links.js";
import { stoppedBefore, whyOfFinding } from "../../shell/details/shared_sections.js";
import { placeLinks } from "../../shell/details/why_trail.js";
import { formatPlace, plural, dotted } from "../../scene/format_numbers_and_names.js";
import { GLYPHS } from "../../canvas/icon_paths.js";
import { icon } from "../../canvas/draw_icon.js";

/** @typedef {import("../../shared_view_state.js").Store} Store */
/** @typedef {import("../../types.js").SceneFinding} Finding */

const NONE = "No problems found";
/** Lines of the audit that are listed at first if something was found. */
const MANY = 2;

export class Findings {
  /**
   * @param {Store} store
   * @param {() => import("../../canvas/theme.js").Palette} palette
   */
  constructor(store, palette) {
    this.store = store;
    /** @type {import("../tensors/lifelines.js").RowSource} of the tensor that the finding is about */
    this.written = { rows: [], listeners: [] };
    this.lifeline = new Lifelines(store, palette, this.written);
    this.graph = new GraphAroundFinding(store, palette);
    this.list = h("div", {
      class: "agv-list",
      attrs: { role: "listbox", tabindex: "0", "aria-label": "Findings" },
    });
    this.audit = h("div", {
      class: "agv-list",
      attrs: { role: "listbox", tabindex: "0", "aria-label": "Other lines" },
    });
    /** Indices of the entries of the audit that no finding says already. */
    this.entries = otherEntries(store.scene);
    this.more = h("div", "agv-audit-more");
    /** True if the weaker lines are listed too. */
    this.isOpen = !store.scene.findings.length;
    this.main = h("div", { class: "agv-main", attrs: { tabindex: 0 } });
    const lists = [
      ...(store.scene.findings.length || this.entries.length
        ? [listHead("Findings"), this.list]
        : []),
      ...(this.entries.length ? [listHead("Other lines to know of"), this.audit, this.more] : []),
      ...(store.scene.summary.audited ? [] : [h("p", "agv-empty-text", "This file has no audit.")]),
    ];
    this.element = h(
      "div",
      lists.length ? "agv-split" : "agv-split agv-alone",
      lists.length > 0 && h("aside", "agv-side", ...lists),
      this.main,
    );
    onArrows(this.list, (step) => {
      if (store.scene.findings[store.finding + step]) store.chooseFinding(store.finding + step);
    });
    onArrows(this.audit, (step) => {
      const next = this.entries[this.entries.indexOf(store.entry) + step];
      if (next !== undefined) store.chooseEntry(next);
    });
    store.subscribe(["finding", "entry"], () => this.#fill());
    this.#fill();
  }

  destroy() {
    this.lifeline.destroy();
    this.graph.destroy();
  }

  draw() {
    this.lifeline.draw();
    this.graph.draw();
  }

  #fill() {
    const { scene, finding, entry } = this.store;
    const { audit_entries } = scene;
    this.element.classList.toggle("agv-one-finding", scene.findings.length === 1 && entry < 0);
    const found = scene.findings.map((each, at) => this.#entry(each, at));
    const none = () => this.store.set("entry", -1);
    this.list.replaceChildren(
      ...(found.length ? found : [option(entry < 0, none, h("div", "agv-strong", NONE))]),
    );
    this.isOpen ||= this.entries.indexOf(entry) >= MANY;
    const rows = this.isOpen ? this.entries : this.entries.slice(0, MANY);
    this.audit.replaceChildren(...rows.map((at) => this.#auditRow(audit_entries[at], at)));
    const rest = plural(this.entries.length - rows.length, "more line");
    const open = () => {
      this.isOpen = true;
      this.#fill();
    };
    const isAll = this.entries.length === rows.length;
    this.more.replaceChildren(...(isAll ? [] : [button(rest, "agv-link", open, rest)]));
    const chosen = scene.findings[finding];
    const placeOfEntry = nodeOfStep(scene, scene.cause_steps[audit_entries[entry]?.steps[0]]);
    this.main.replaceChildren(
      ...(entry >= 0
        ? [entryCard(this.store, audit_entries[entry]), ...this.#picture(placeOfEntry)]
        : chosen
          ? [
              findingCard(this.store, chosen, finding),
              ...this.#story(chosen),
              ...this.#picture(chosen.nodes[0]),
            ]
          : [nothingFound(this.store)]),
    );
  }

  /**
   * @param {number | undefined} node
   * @returns {HTMLElement[]} the graph around a node
   */
  #picture(node) {
    if (node === undefined) return [];
    requestAnimationFrame(() => this.graph.show(node));
    return [block("In the graph", this.graph.element)];
  }

  /**
   * @param {Finding} finding
   * @returns {HTMLElement[]} the lifeline of the tensor that its node could not use
   */
  #story({ nodes: [at] }) {
    const { scene, sceneIndex } = this.store;
    const saved = scene.saved_badges.find(({ node, state }) => node === at && state === "broken");
    const storage = scene.storages[sceneIndex.storageOf.get(saved?.storage_id ?? -1) ?? -1];
    if (!storage) return [];
    this.written.rows = [{ storages: [storage], nbytes: storage.nbytes, atPeak: 0 }];
    for (const listener of this.written.listeners) listener();
    return [block(`What happened to ${storage.name}`, this.lifeline.element)];
  }

  /**
   * @param {import("../../types.js").SceneAuditEntry} entry
   * @param {number} at
   * @returns {HTMLElement}
   */
  #auditRow({ mechanism, word, glyph, steps }, at) {
    const { text, line, filename, lineno } = this.store.scene.cause_steps[steps[0]];
    const row = option(
      at === this.store.entry,
      () => this.store.chooseEntry(at),
      h("span", { title: mechanism }, icon({ stroke: glyph })),
      h(
        "div",
        {},
        line && h("code", "", line),
        h("div", line && "agv-clamp", text),
        h("div", "agv-muted", dotted([word, formatPlace(filename, lineno)])),
      ),
    );
    row.classList.add("agv-entry-row");
    return row;
  }

  /**
   * @param {Finding} finding
   * @param {number} at
   * @returns {HTMLElement}
   */
  #entry(finding, at) {
    return option(
      at === this.store.finding && this.store.entry < 0,
      () => this.store.chooseFinding(at),
      h("div", "agv-strong", finding.title),
      h("div", "agv-muted", dotted([finding.confidence, findingPlace(finding)])),
    );
  }
}

/**
 * @param {boolean} selected
 * @param {() => void} onclick
 * @param {...Node} parts
 * @returns {HTMLElement} a row of a list
 */
function option(selected, onclick, ...parts) {
  const attrs = { role: "option", "aria-selected": selected };
  const own = { class: `agv-finding-row ${selected ? "agv-selected" : ""}`, attrs, onclick };
  return h("div", own, ...parts);
}

/**
 * @param {import("../../types.js").Scene} scene
 * @returns {number[]} indices of the entries of the audit that say something else than a finding
 */
function otherEntries({ audit_entries, cause_steps, findings, summary }) {
  const known = new Set(
    findings.flatMap(({ title, culprit_file, culprit_line, fix }) => [
      title,
      `${culprit_file}:${culprit_line} ${fix}`,
    ]),
  );
  return [...audit_entries].flatMap(({ steps, fix }, at) => {
    const { text, filename, lineno } = cause_steps[steps[0]];
    const raised = findings.length && text.startsWith(`${summary.error_type}: `);
    return raised || known.has(text) || known.has(`${filename}:${lineno} ${fix}`) ? [] : [at];
  });
}

/**
 * Return the numbers of a recording without findings, and the problems that were looked for.
 *
 * @param {Store} store
 * @returns {HTMLElement}
 */
function nothingFound(store) {
  const { checks, evidence, facts } = store.scene;
  const groups = [...checks].map(({ topic, title, kinds }) =>
    h(
      "section",
      "agv-check-group",
      h("h4", "", title),
      ...evidence.filter((each) => each.topic === topic).map((each) => evidenceTile(store, each)),
      ...(facts.some((each) => each.lines && each.topic === topic) ? factRows(store, topic) : []),
      h(
        "div",
        "agv-muted",
        `looked for, and not found, ${plural(kinds.length, "kind")} of problems:`,
      ),
      h("ul", "agv-kinds", ...kinds.map((kind) => h("li", "", kind))),
    ),
  );
  return h(
    "article",
    "agv-finding agv-nothing-found",
    h("h3", "", NONE),
    groups.length
      ? h("div", "agv-check-groups", ...groups)
      : block("What the recording shows", ...factRows(store)),
  );
}

/**
 * @param {Store} store
 * @param {import("../../types.js").SceneEvidence} evidence
 * @returns {HTMLElement} a number, a bar of the part that is as it should be, what it counts
 */
function evidenceTile(store, { figure, caption, view, share }) {
  const bar = h("span", "agv-evidence-bar");
  bar.style.setProperty("--share", `${100 * share}%`);
  const parts = [h("b", "", figure), caption, ...(share < 0 ? [] : [bar])];
  return store.hasView(view)
    ? button(`${figure} ${caption}`, "agv-evidence", () => store.set("view", view), ...parts)
    : h("div", "agv-evidence", ...parts);
}

/**
 * @param {Store} store
 * @param {import("../../types.js").SceneAuditEntry} entry
 * @returns {HTMLElement}
 */
function entryCard(store, { mechanism, glyph, meaning, steps, confidence, explanation, fix }) {
  const [first, ...others] = steps.map((at) => store.scene.cause_steps[at]);
  const lines = [first, ...others].map(({ filename, lineno, line }, at) => ({
    filename,
    line: lineno,
    kind: /** @type {const} */ ("selected-line"),
    tag: at ? "or" : mechanism,
    text: line,
  }));
  return card(
    "agv-finding agv-entry",
    [icon({ stroke: glyph }, "agv-icon-16"), first.text, mechanism, confidence],
    excerpts(store.sceneIndex, lines),
    explanationOf(`The line ${meaning}.\n${explanation}`),
    ["If it is not meant", fix, ""],
    placeLinks(store, first, "agv-button"),
  );
}

/**
 * @param {string} className
 * @param {[icon: Node, title: string, kind: string, confidence: string]} head
 * @param {HTMLElement[]} source
 * @param {HTMLElement} why
 * @param {[title: string, fix: string, place: string]} fix
 * @param {HTMLElement} buttons
 * @returns {HTMLElement}
 */
function card(className, [glyph, title, kind, confidence], source, why, fix, buttons) {
  const [fixTitle, text, place] = fix;
  const change = [h("div", "agv-muted agv-mono", place), fixBlock(text)].slice(place ? 0 : 1);
  return h(
    "article",
    className,
    h(
      "div",
      "agv-finding-title",
      glyph,
      h("h3", "", title),
      h("span", "agv-pill", kind),
      h("span", "agv-pill", `confidence: ${confidence}`),
    ),
    h(
      "div",
      "agv-finding-columns",
      h(
        "div",
        "",
        text !== "" && block(fixTitle, ...change),
        source.length > 0 && block("Where", ...source),
      ),
      h("div", "", block("Why", why), buttons),
    ),
  );
}

/**
 * @param {Finding} finding
 * @returns {string}
 */
function findingPlace(finding) {
  return finding.culprit_file
    ? formatPlace(finding.culprit_file, finding.culprit_line)
    : formatPlace(finding.victim_file, finding.victim_line);
}

/**
 * @param {import("../../types.js").Scene} scene
 * @param {import("../../types.js").SceneCauseStep | undefined} step
 * @returns {number | undefined} one of its nodes, of its line if one is
 */
function nodeOfStep({ nodes }, step) {
  const isAt = (/** @type {number} */ at) =>
    nodes[at].lineno === step?.lineno && nodes[at].filename === step.filename;
  return step && (step.nodes.find(isAt) ?? [...nodes.keys()].find(isAt) ?? step.nodes[0]);
}

/**
 * @param {Store} store
 * @param {Finding} finding
 * @param {number} at
 * @returns {HTMLElement}
 */
function findingCard(store, finding, at) {
  const node = finding.nodes[0] ?? -1;
  const show = () => store.reveal({ kind: "node", index: node });
  const compare = () => store.showRegion(finding.region);
  const glyph = finding.confidence === "hint" ? GLYPHS.findings : "failed";
  return card(
    `agv-finding agv-${finding.confidence}`,
    [
      h("span", "agv-mutation", icon(glyph, "agv-icon-16")),
      finding.title,
      finding.slug,
      finding.confidence,
    ],
    findingSource(store.sceneIndex, finding, 5),
    explanationOf(
      [finding.explanation, stoppedBefore(store.scene, finding)].filter(Boolean).join("\n"),
      finding,
    ),
    ["What to change", finding.fix, findingPlace(finding)],
    h(
      "div",
      "agv-buttons",
      node >= 0 && button("Show in the graph", "agv-button", show),
      ...whyOfFinding(store, at, "agv-button"),
      finding.region >= 0 && button("Compare forward and recomputation", "agv-button", compare),
    ),
  );
}
