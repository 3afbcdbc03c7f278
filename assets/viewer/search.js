// @ts-check
/** Finds nodes and groups by op, module, place, tensor or parameter, and opens the way to them. */

import { h } from "./dom.js";
import { formatPlace, plural } from "./format.js";
import { icon } from "./icons.js";

/** @typedef {import("./store.js").Item} Item */
/** @typedef {import("./store.js").Store} Store */
/** @typedef {{item: Item, title: string, aside: string, text: string}} Entry */

const SHOWN = 12;

export class Search {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    /** @type {Entry[] | null} made with the first search */
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
      { class: "agv-search" },
      icon("search"),
      this.input,
      h("kbd", { text: "/" }),
      this.results,
    );
    this.input.addEventListener("input", () => this.#search());
    this.input.addEventListener("keydown", (event) => this.#press(event));
    this.input.addEventListener("blur", () => this.#hide());
    this.input.addEventListener("focus", () => this.#search());
    this.results.addEventListener("pointerdown", (event) => {
      const target = /** @type {Element} */ (event.target).closest("[data-at]");
      event.preventDefault();
      if (target) this.#go(Number(target.getAttribute("data-at")));
    });
  }

  focus() {
    this.input.focus();
    this.input.select();
  }

  /** @returns {boolean} whether there was something to clear */
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
    this.entries ??= entriesOf(this.store.atlas);
    this.found = this.entries.filter(({ text }) => words.every((word) => text.includes(word)));
    this.active = 0;
    this.#show();
  }

  #show() {
    const rows = this.found.slice(0, SHOWN).map((entry, at) =>
      h(
        "div",
        {
          class: `agv-result ${at === this.active ? "agv-on" : ""}`,
          attrs: { role: "option", "data-at": at, "aria-selected": at === this.active },
        },
        h("span", {
          class: entry.item.kind === "node" ? "agv-backward" : "agv-strong",
          text: entry.title,
        }),
        h("span", { class: "agv-muted agv-end", text: entry.aside }),
      ),
    );
    const rest = this.found.length - rows.length;
    const words = rest ? `and ${rest} more` : this.found.length ? "" : "nothing found";
    this.results.replaceChildren(
      ...rows,
      h("div", { class: "agv-muted agv-result-end", text: words }),
    );
    this.results.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
  }

  /** @param {KeyboardEvent} event */
  #press(event) {
    event.stopPropagation();
    const last = Math.min(this.found.length, SHOWN) - 1;
    if (event.key === "Escape") {
      if (!this.clear()) this.input.blur();
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
    this.store.reveal(entry.item);
    this.#hide();
  }
}

/**
 * @param {import("./atlas.js").Atlas} atlas
 * @returns {Entry[]}
 */
function entriesOf(atlas) {
  const groups = atlas.scene.groups
    .slice(1)
    .map((group) =>
      entryOf("group", group.index, group.path || group.label, plural(group.node_count, "node"), [
        group.label,
        group.type_name,
      ]),
    );
  const nodes = atlas.scene.nodes.map((node) => {
    const place = formatPlace(node.filename, node.lineno);
    const tensors = atlas.chips[node.index].map((chip) => `${chip.slot} ${chip.shape}`);
    const parameters = atlas.pennants[node.index].map((pennant) => pennant.name);
    const aside = [node.module, place].filter(Boolean).join(" · ");
    return entryOf("node", node.index, node.name, aside, [
      node.op,
      node.shape,
      ...tensors,
      ...parameters,
    ]);
  });
  return [...groups, ...nodes];
}

/**
 * @param {"node" | "group"} kind
 * @param {number} index
 * @param {string} title
 * @param {string} aside
 * @param {string[]} words
 * @returns {Entry}
 */
function entryOf(kind, index, title, aside, words) {
  return {
    item: { kind, index },
    title,
    aside,
    text: [title, aside, ...words].join(" ").toLowerCase(),
  };
}
