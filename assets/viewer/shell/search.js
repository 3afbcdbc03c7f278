// @ts-check
/** The search field: finds modules, ops, nodes, parameters, lines and tensors, and reveals them. */

import { h, listen } from "../dom.js";
import { icon } from "../canvas/icons.js";
import { searchEntries } from "./search_entries.js";

/** @typedef {import("./search_entries.js").Entry} Entry */
/** @typedef {import("../store.js").Store} Store */

const MAX_RESULTS = 12;

/** @type {Record<string, string>} */
const CLASSES = { node: "agv-backward", parameter: "agv-leaf", tensor: "agv-saved" };

export class Search {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    /** @type {Entry[] | null} created by the first search */
    this.entries = null;
    /** @type {Entry[]} */
    this.found = [];
    this.active = 0;
    this.input = h("input", {
      attrs: {
        type: "text",
        placeholder: "Search op, module, file:line, tensor",
        "aria-label": "Search",
        role: "combobox",
        "aria-expanded": "false",
        spellcheck: "false",
      },
    });
    this.results = h("div", { class: "agv-results agv-float", attrs: { role: "listbox" } });
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
    listen(this.input, "blur", () => this.#hide());
    listen(this.input, "focus", () => this.#search());
    listen(this.results, "pointerdown", (event) => {
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
    return had;
  }

  #hide() {
    this.results.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
  }

  #search() {
    const words = this.input.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return this.#hide();
    this.entries ??= searchEntries(this.store.sceneIndex);
    this.found = this.entries.filter(({ text }) => words.every((word) => text.includes(word)));
    // Titles that start with the query come first. Entries are sorted stably: those that stand for
    // several items come before each of these items.
    const query = words.join(" ");
    const rank = (/** @type {Entry} */ entry) => +!entry.title.toLowerCase().startsWith(query);
    this.found.sort((a, b) => rank(a) - rank(b));
    this.active = 0;
    this.#show();
  }

  #show() {
    const rows = this.found.slice(0, MAX_RESULTS).map((entry, at) =>
      h(
        "div",
        {
          class: `agv-result ${at === this.active ? "agv-selected" : ""}`,
          attrs: { role: "option", "data-at": at, "aria-selected": at === this.active },
        },
        h("span", "agv-result-kind", entry.kind),
        h("span", CLASSES[entry.kind] ?? "agv-strong", entry.title),
        h("span", "agv-muted agv-end", entry.aside),
      ),
    );
    const rest = this.found.length - rows.length;
    const note = rest ? `and ${rest} more` : this.found.length ? "" : "no results";
    this.results.replaceChildren(...rows, h("div", "agv-muted agv-result-end", note));
    this.results.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
  }

  /** @param {KeyboardEvent} event */
  #press(event) {
    event.stopPropagation();
    const last = Math.min(this.found.length, MAX_RESULTS) - 1;
    if (event.key === "Escape") {
      if (!this.clear()) this.input.blur();
    } else if (event.key === "Tab" && this.found[this.active]) {
      event.preventDefault();
      this.#complete(this.found[this.active].title);
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
    if (entry.item) {
      this.store.reveal(entry.item);
      this.#hide();
      return;
    }
    // An entry for several items reveals the first of them and lists all.
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
