// @ts-check
/** Each region's forward beside its recomputation, op by op. */

import { facts, h, section } from "./dom.js";
import { formatPlace, plural } from "./format.js";
import { icon } from "./icons.js";

/** @typedef {import("./types.js").SceneDiffRow} DiffRow */
/** @typedef {import("./types.js").SceneRegion} Region */
/** @typedef {import("./store.js").Store} Store */

const WORDS = {
  same: ["=", "same"],
  changed: ["≠", "changed"],
  added: ["+", "only in recompute"],
  removed: ["−", "only in forward"],
  not_rerun: ["□", "not rerun"],
};

const OUTCOMES = /** @type {Record<string, string>} */ ({
  completed: "completed",
  early_stop: "stopped early: backward had all it needed",
  error: "ended in an error",
});

export class Checkpoint {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    /** @type {HTMLElement[]} rows that differ */
    this.differences = [];
    this.at = -1;
    this.list = h("div", {
      class: "agv-list",
      attrs: { role: "listbox", tabindex: "0", "aria-label": "Checkpoint regions" },
    });
    this.main = h("div", { class: "agv-main" });
    this.element = h(
      "div",
      { class: "agv-split" },
      h("aside", { class: "agv-side" }, this.list),
      this.main,
    );
    this.list.addEventListener("keydown", (event) => this.#press(event));
    store.subscribe((change) => {
      if (change === "region") this.#fill();
    });
    this.#fill();
  }

  #fill() {
    const { scene, region } = this.store;
    this.list.replaceChildren(
      h("div", { class: "agv-head", text: "Checkpoint regions" }),
      ...scene.regions.map((each) => this.#entry(each)),
    );
    const chosen = scene.regions[region];
    this.at = -1;
    this.differences = [];
    if (!chosen) {
      this.main.replaceChildren(
        h("p", {
          class: "agv-empty-words",
          text: "Nothing was checkpointed in this recording. torch.utils.checkpoint.checkpoint(function, …) makes a region.",
        }),
      );
      return;
    }
    const rows = scene.diffs.filter((row) => row.region === region);
    this.main.replaceChildren(this.#head(chosen, rows), this.#diff(rows), aboutRegion(chosen));
    this.main.scrollTop = 0;
  }

  /**
   * @param {Region} region
   * @returns {HTMLElement}
   */
  #entry(region) {
    const selected = region.index === this.store.region;
    const rows = this.store.scene.diffs.filter((row) => row.region === region.index);
    const failed = region.outcome === "error" || rows.some(differs);
    return h(
      "div",
      {
        class: `agv-row ${selected ? "agv-on" : ""}`,
        attrs: { role: "option", "aria-selected": selected },
        onclick: () => this.store.showRegion(region.index),
      },
      h("span", {
        class: "agv-row-label",
        text: region.module || region.function,
        title: `${region.function} ${formatPlace(region.filename, region.lineno)}`,
      }),
      failed && h("span", { class: "agv-mutation", title: "differs" }, icon("failed")),
      h("span", { class: "agv-pill agv-recompute" }, icon("checkpoint"), String(region.recomputes)),
    );
  }

  /** @param {KeyboardEvent} event */
  #press(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const next = this.store.region + step;
    if (this.store.scene.regions[next]) this.store.showRegion(next);
  }

  /**
   * @param {Region} region
   * @param {DiffRow[]} rows
   * @returns {HTMLElement}
   */
  #head(region, rows) {
    const counts = Object.entries(WORDS)
      .map(([status, [, word]]) => [rows.filter((row) => row.status === status).length, word])
      .filter(([count]) => count)
      .map(([count, word]) => `${count} ${word}`);
    return h(
      "div",
      { class: "agv-view-head" },
      h("h3", { text: region.module || region.function }),
      h("span", { class: "agv-muted", text: counts.join(" · ") }),
      rows.some(differs) &&
        h("span", { class: "agv-end agv-muted" }, "next ", h("kbd", { text: "n" })),
    );
  }

  /**
   * @param {DiffRow[]} rows
   * @returns {HTMLElement}
   */
  #diff(rows) {
    if (!rows.length) {
      const text =
        "This region has not been recomputed, so there is nothing to compare with its forward.";
      return h("p", { class: "agv-empty-words", text });
    }
    const head = ["compare", "forward", "", "line", "recompute", "", "line"].map((text) =>
      h("th", { text }),
    );
    const body = h("tbody");
    let first = true;
    for (const part of folded(rows)) {
      const row = part[0];
      const element = part.length > 1 ? foldedRow(part) : diffRow(row, first);
      if (differs(row)) {
        this.differences.push(element);
        first = false;
      }
      body.append(element);
    }
    const top = h("thead", {}, h("tr", {}, ...head));
    return h("div", { class: "agv-scroll" }, h("table", { class: "agv-diff" }, top, body));
  }

  /** Go to the next row that differs. */
  next() {
    if (!this.differences.length) return;
    this.differences[this.at]?.classList.remove("agv-current");
    this.at = (this.at + 1) % this.differences.length;
    this.differences[this.at].classList.add("agv-current");
    this.differences[this.at].scrollIntoView({ block: "center" });
  }
}

/**
 * @param {DiffRow} row
 * @returns {boolean}
 */
function differs(row) {
  return row.status !== "same" && row.status !== "not_rerun";
}

/**
 * Long stretches of rows that agree, together.
 *
 * @param {DiffRow[]} rows
 * @returns {DiffRow[][]}
 */
function folded(rows) {
  /** @type {DiffRow[][]} */
  const parts = [];
  for (const row of rows) {
    const last = parts[parts.length - 1];
    if (last && last[0].status === row.status && !differs(row)) last.push(row);
    else parts.push([row]);
  }
  return parts.flatMap((part) => (part.length > 3 ? [part] : part.map((row) => [row])));
}

/**
 * @param {DiffRow[]} part
 * @returns {HTMLElement}
 */
function foldedRow(part) {
  const { status } = part[0];
  const span = (/** @type {number[]} */ numbers) =>
    numbers[0] ? `${numbers[0]}–${numbers[numbers.length - 1]}` : "";
  const side = (/** @type {string} */ range, /** @type {string[]} */ ops) =>
    h(
      "td",
      { class: "agv-diff-folded", attrs: { colspan: 3 } },
      range && h("span", { class: "agv-diff-nr", text: range }),
      range && [...new Set(ops)].join(", "),
    );
  const [forward, recompute] = [
    part.map((row) => row.forward_op),
    part.map((row) => row.recompute_op),
  ];
  return h(
    "tr",
    { class: `agv-diff-${status}` },
    markOf(status, WORDS[status][1]),
    side(span(part.map((row) => row.forward_nr)), forward),
    side(span(part.map((row) => row.recompute_nr)), recompute),
  );
}

/**
 * @param {keyof typeof WORDS} status
 * @param {string} words
 * @returns {HTMLElement}
 */
function markOf(status, words) {
  return h("td", { class: "agv-diff-mark" }, h("b", { text: WORDS[status][0] }), words);
}

/**
 * @param {DiffRow} row
 * @param {boolean} first whether no row above differs
 * @returns {HTMLElement}
 */
function diffRow(row, first) {
  const leads = first && differs(row);
  const words = leads ? "first difference" : WORDS[row.status][1];
  const [forwardShape, recomputeShape] = shapePair(row.forward_shape, row.recompute_shape);
  return h(
    "tr",
    { class: `agv-diff-${row.status} ${leads ? "agv-diff-first" : ""}` },
    markOf(row.status, words),
    ...side(row.forward_nr, row.forward_op, forwardShape, row.forward_line),
    ...side(row.recompute_nr, row.recompute_op, recomputeShape, row.recompute_line),
  );
}

/**
 * One side of a row, hatched where the op is absent.
 *
 * @param {number} number
 * @param {string} op
 * @param {Node[]} shape
 * @param {number} line
 * @returns {HTMLElement[]}
 */
function side(number, op, shape, line) {
  if (!number) return [h("td", { class: "agv-void", attrs: { colspan: 3 } })];
  return [
    h(
      "td",
      { class: "agv-diff-op" },
      h("span", { class: "agv-diff-nr", text: String(number) }),
      op,
    ),
    h("td", { class: "agv-mono" }, ...shape),
    h("td", { class: "agv-mono agv-muted agv-right", text: line ? String(line) : "" }),
  ];
}

/**
 * Two shapes, with the sizes that differ marked.
 *
 * @param {string} forward
 * @param {string} recompute
 * @returns {[Node[], Node[]]}
 */
function shapePair(forward, recompute) {
  const [a, b] = [forward.split("×"), recompute.split("×")];
  const marked = (/** @type {string[]} */ sizes, /** @type {string[]} */ others) =>
    sizes.flatMap((size, at) => [
      document.createTextNode(at ? "×" : ""),
      h("span", {
        class: forward && recompute && size !== others[at] ? "agv-differs" : "",
        text: size,
      }),
    ]);
  return [marked(a, b), marked(b, a)];
}

/**
 * @param {Region} region
 * @returns {HTMLElement}
 */
function aboutRegion(region) {
  const place = formatPlace(region.filename, region.lineno);
  return section(
    "Region",
    "",
    facts([
      ["function", h("code", { text: region.function })],
      ["entered", place && h("code", { text: place })],
      ["variant", region.reentrant ? "reentrant" : "non-reentrant"],
      ["early stop", region.early_stop ? "on" : "off"],
      ["saves", plural(region.saved, "tensor")],
      ["recomputed", `${region.recomputes}×`],
      ["last one", OUTCOMES[region.outcome] ?? region.outcome],
    ]),
  );
}
