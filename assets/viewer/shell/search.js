// @ts-check
/**
 * The search field: finds modules, ops, nodes, parameters, lines and tensors, and reveals them.
 * Filters find nodes, which all views mark; ">" lists commands.
 */

import { h, listen, placeText } from "../dom.js";
import { icon } from "../canvas/draw_icon.js";
import { formatBytes, plural, dotted } from "../scene/format_numbers_and_names.js";
import { FILTERS, findNodes, parseQuery } from "./search_filters.js";
import { searchEntries } from "./search_entries.js";
import { answerCard, openAnswer } from "./search_answer_card.js";
import { answerQuestion, exampleQuestions } from "../scene/answer_questions.js";

/** @typedef {import("./search_entries.js").Entry} Entry */
/** @typedef {import("../shared_view_state.js").Store} Store */

const MAX_RESULTS = 12;

/** Number of lists on the page: element ids must differ. */
let lists = 0;

/** @type {Record<string, string>} */
const CLASSES = { node: "agv-backward", parameter: "agv-leaf", tensor: "agv-saved" };

export class Search {
  /**
   * @param {Store} store
   * @param {() => import("./search_commands.js").Command[]} commands
   */
  constructor(store, commands) {
    this.store = store;
    this.commands = commands;
    /** @type {string} of the matches */
    this.note = "";
    /** @type {Entry[] | null} created by the first search */
    this.entries = null;
    /** @type {Entry[]} */
    this.found = [];
    this.active = 0;
    const id = `agv-results-${++lists}`;
    this.input = h("input", {
      attrs: {
        type: "text",
        placeholder: "Search or ask: what fills memory",
        "aria-label": "Search",
        role: "combobox",
        "aria-expanded": "false",
        "aria-controls": id,
        spellcheck: "false",
      },
    });
    const attrs = { role: "listbox", "aria-label": "Results", id };
    this.list = h("div", { class: "agv-result-list", attrs });
    this.status = h("div", { class: "agv-muted agv-result-end", attrs: { role: "status" } });
    this.hints = h("div", "", ...FILTERS.map(filterRow));
    this.card = h("div", { attrs: { "aria-live": "polite" } });
    /** @type {import("../scene/answer_questions.js").Answer | null} */
    this.answer = null;
    this.results = h("div", "agv-results agv-float", this.card, this.list, this.status, this.hints);
    this.results.hidden = true;
    this.element = h(
      "div",
      "agv-search",
      icon("search"),
      this.input,
      h("kbd", "", "/"),
      this.results,
    );
    listen(this.input, "input", () => this.#search());
    listen(this.input, "keydown", (event) => this.#press(event));
    listen(this.element, "focusout", (event) => {
      const to = /** @type {Node | null} */ (event.relatedTarget);
      if (!this.element.contains(to)) this.#hide();
    });
    listen(this.input, "focus", () => this.#search());
    listen(this.results, "pointerdown", (event) => {
      if (this.card.contains(/** @type {Node} */ (event.target))) return;
      const target = /** @type {Element} */ (event.target).closest("[data-at]");
      event.preventDefault();
      if (target) this.#go(Number(target.getAttribute("data-at")));
    });
  }

  focus() {
    this.input.focus();
    this.input.select();
  }

  /** @returns {boolean} whether the field was not empty */
  clear() {
    const had = this.input.value !== "";
    this.input.value = "";
    this.#hide();
    this.store.set("matches", null);
    return had;
  }

  #hide() {
    this.results.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
  }

  #search() {
    const { store } = this;
    const { sceneIndex } = store;
    const text = this.input.value.trim();
    this.note = "";
    this.answer = answerQuestion(sceneIndex, text, store.step);
    this.card.replaceChildren();
    if (this.answer) return this.#showAnswer(text, this.answer);
    if (text[0] === ">") return this.#list(text.slice(1));
    const query = parseQuery(sceneIndex, text);
    const { words, filters, unknown } = query;
    if (!words.length && !filters.length && !unknown.length) {
      store.set("matches", null);
      return text ? this.#hide() : this.#showExamples();
    }
    this.entries ??= searchEntries(sceneIndex);
    const matches = filters.length ? this.#match(query) : null;
    store.set("matches", matches);
    this.found = this.entries.filter(
      ({ text: searched, kind, item }) =>
        (!matches || (kind === "node" && matches.has(item?.index ?? -1))) &&
        words.every((word) => searched.includes(word)),
    );
    if (unknown.length) this.note = `no filter: ${unknown.join(", ")}`;
    // Titles that start with the query come first. Entries are sorted stably: those that stand for
    // several items come before each of these items.
    const start = words.join(" ");
    const rank = (/** @type {Entry} */ entry) => +!entry.title.toLowerCase().startsWith(start);
    this.found.sort((a, b) => rank(a) - rank(b));
    this.active = 0;
    if (!this.found.length && !filters.length && !unknown.length) return this.#showExamples();
    this.#show();
  }

  /** List questions that this recording answers. */
  #showExamples() {
    if (!this.input.matches(":focus")) return this.#hide();
    this.found = questionEntries(exampleQuestions(this.store.sceneIndex));
    this.active = -1;
    this.#show();
    const nothing = this.input.value.trim() && "no results; this recording answers these questions";
    this.status.textContent = nothing;
  }

  /**
   * @param {string} question
   * @param {import("../scene/answer_questions.js").Answer} answer
   */
  #showAnswer(question, answer) {
    this.found = questionEntries(answer.asks ?? []);
    this.active = -1;
    this.store.set("matches", null);
    this.#show();
    this.card.replaceChildren(answerCard(this.store, question, answer, () => this.#leave()));
    this.hints.hidden = true;
    this.status.textContent = "";
  }

  #leave() {
    this.#hide();
    this.input.blur();
  }

  /**
   * @param {import("./search_filters.js").Query} query
   * @returns {Set<number>} the nodes that it finds
   */
  #match(query) {
    const { sceneIndex } = this.store;
    /** @type {Map<number, string>} */
    const texts = new Map();
    for (const { kind, item, text } of this.entries ?? []) {
      if (kind === "node" && item) texts.set(item.index, text);
    }
    const found = findNodes(sceneIndex, query, ({ index }) => texts.get(index) ?? "");
    let nbytes = 0;
    for (const each of this.store.scene.counted_storages) {
      if (found.has(each.node)) nbytes += each.nbytes;
    }
    this.note = `${plural(found.size, "node")} marked in all views · ${formatBytes(nbytes)}`;
    return found;
  }

  /** @param {string} text lists the commands that have all its words */
  #list(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.found = this.commands()
      .map(([title, run]) => {
        const searched = title.toLowerCase();
        return {
          kind: /** @type {const} */ ("run"),
          item: null,
          fill: "",
          title,
          aside: "",
          text: searched,
          run,
        };
      })
      .filter(({ text: searched }) => words.every((word) => searched.includes(word)));
    this.active = 0;
    this.#show();
  }

  /** @returns {number} of entries that are listed: all commands, the first results of a search */
  #count() {
    const { length } = this.found;
    return this.found[0]?.run ? length : Math.min(length, MAX_RESULTS);
  }

  #show() {
    const rows = this.found.slice(0, this.#count()).map((entry, at) =>
      h(
        "div",
        {
          class: `agv-result ${at === this.active ? "agv-selected" : ""}`,
          attrs: { role: "option", "data-at": at, "aria-selected": at === this.active },
        },
        h("span", "agv-result-kind", entry.kind),
        h("span", CLASSES[entry.kind] ?? "agv-strong", placeText(entry.title)),
        h("span", "agv-muted agv-end", placeText(entry.aside)),
      ),
    );
    const rest = this.found.length - rows.length;
    const more = rest ? `and ${rest} more` : this.found.length ? "" : "no results";
    this.list.replaceChildren(...rows);
    this.status.textContent = dotted([this.note, more]);
    this.list.hidden = !rows.length;
    this.hints.hidden = rows.length > 0;
    this.results.hidden = false;
    rows[this.active]?.scrollIntoView({ block: "nearest" });
    this.input.setAttribute("aria-expanded", "true");
  }

  /** @param {KeyboardEvent} event */
  #press(event) {
    event.stopPropagation();
    const last = this.#count() - 1;
    if (event.key === "Escape") {
      if (!this.clear()) this.input.blur();
    } else if (event.key === "Tab" && this.found[this.active]) {
      event.preventDefault();
      this.#complete(this.found[this.active].title);
    } else if (event.key === "Enter" && this.answer && !this.found[this.active]) {
      this.#leave();
      openAnswer(this.store, this.answer);
    } else if (event.key === "Enter") {
      this.#go(this.active);
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const to = this.active + (event.key === "ArrowDown" ? 1 : -1);
      this.active = Math.max(0, Math.min(last, to));
      this.#show();
    }
  }

  /** @param {number} at */
  #go(at) {
    const entry = this.found[at];
    if (!entry) return;
    if (entry.run) {
      this.clear();
      this.input.blur();
      entry.run();
      return;
    }
    if (entry.kind === "ask") return this.#complete(entry.title);
    if (entry.line) {
      this.#hide();
      this.store.showLine(entry.line.filename, entry.line.lineno);
      return;
    }
    if (entry.asks) {
      this.#hide();
      this.store.ask(`parameter ${entry.asks}`, entry.asks);
      return;
    }
    if (entry.item) {
      this.store.reveal(entry.item);
      this.#hide();
      return;
    }
    // An entry for several items reveals the first of them and lists all on the next key.
    this.#complete(entry.fill);
    this.active = this.found.findIndex(({ item }) => item);
    this.#show();
    const first = this.found[this.active]?.item;
    if (first) this.store.reveal(first);
  }

  /** @param {string} text */
  #complete(text) {
    this.input.value = text;
    this.#search();
  }
}

/**
 * @param {string[]} questions
 * @returns {Entry[]}
 */
function questionEntries(questions) {
  const kind = /** @type {const} */ ("ask");
  return questions.map((title) => ({
    kind,
    item: null,
    fill: title,
    title,
    aside: "",
    text: title,
  }));
}

/**
 * @param {[example: string, meaning: string]} filter
 * @returns {HTMLElement}
 */
function filterRow([example, meaning]) {
  return h("div", "agv-result agv-muted", h("code", "", example), h("span", "agv-end", meaning));
}
