// @ts-check
/** What is wrong, which line made it so, and what to write instead. */

import { button, h } from "../../dom.js";
import { explanation, findingSource, fixOf } from "../source/excerpt.js";
import { formatPlace } from "../../scene/format.js";
import { icon } from "../../canvas/icons.js";

/** @typedef {import("../../store.js").Store} Store */
/** @typedef {import("../../types.js").SceneFinding} Finding */

export class Findings {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    this.list = h("div", {
      class: "agv-list",
      attrs: { role: "listbox", tabindex: "0", "aria-label": "Findings" },
    });
    this.main = h("div", { class: "agv-main" });
    this.element = h(
      "div",
      { class: "agv-split" },
      h("aside", { class: "agv-side" }, this.list),
      this.main,
    );
    this.list.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      if (store.scene.findings[store.finding + step]) this.#choose(store.finding + step);
    });
    store.subscribe((change) => {
      if (change === "finding") this.#fill();
    });
    this.#fill();
  }

  /** Go to the next finding. */
  next() {
    const count = this.store.scene.findings.length;
    if (count) this.#choose((this.store.finding + 1) % count);
  }

  /** @param {number} at */
  #choose(at) {
    this.store.showFinding(at);
    const node = this.store.scene.findings[at].nodes[0];
    if (node !== undefined) this.store.select({ kind: "node", index: node });
  }

  #fill() {
    const { scene, finding } = this.store;
    this.list.replaceChildren(
      h("div", { class: "agv-head", text: "Findings" }),
      ...scene.findings.map((each, at) => this.#entry(each, at)),
    );
    const chosen = scene.findings[finding];
    this.main.replaceChildren(
      ...(chosen
        ? [findingCard(this.store, chosen)]
        : [
            h("p", {
              class: "agv-empty-words",
              text: "Nothing wrong was found in this recording.",
            }),
          ]),
    );
  }

  /**
   * @param {Finding} finding
   * @param {number} at
   * @returns {HTMLElement}
   */
  #entry(finding, at) {
    const selected = at === this.store.finding;
    return h(
      "div",
      {
        class: `agv-finding-row ${selected ? "agv-on" : ""}`,
        attrs: { role: "option", "aria-selected": selected },
        onclick: () => this.#choose(at),
      },
      h("div", { class: "agv-strong", text: finding.title }),
      h("div", {
        class: "agv-muted",
        text: [finding.confidence, placeOf(finding)].filter(Boolean).join(" · "),
      }),
    );
  }
}

/**
 * @param {Finding} finding
 * @returns {string}
 */
function placeOf(finding) {
  return finding.culprit_file
    ? formatPlace(finding.culprit_file, finding.culprit_line)
    : formatPlace(finding.victim_file, finding.victim_line);
}

/**
 * @param {Store} store
 * @param {Finding} finding
 * @returns {HTMLElement}
 */
function findingCard(store, finding) {
  const node = finding.nodes[0];
  const show = () => store.reveal({ kind: "node", index: node });
  const compare = () => {
    store.showRegion(finding.region);
    store.show("checkpoint");
  };
  const source = findingSource(store.atlas, finding);
  return h(
    "article",
    { class: "agv-finding" },
    h(
      "div",
      { class: "agv-finding-title" },
      h("span", { class: "agv-mutation" }, icon("failed", "agv-icon-16")),
      h("h3", { text: finding.title }),
      h("span", { class: "agv-pill", text: finding.slug }),
      h("span", { class: "agv-pill", text: `confidence: ${finding.confidence}` }),
    ),
    source.length > 0 && block("Where", ...source),
    block("Why", explanation(finding.explanation)),
    finding.fix !== "" && block("Fix", fixOf(finding.fix)),
    h(
      "div",
      { class: "agv-buttons" },
      node !== undefined && button("Show in the graph", "agv-button", show, "Show in the graph"),
      finding.region >= 0 &&
        button("Compare the two runs", "agv-button", compare, "Compare the two runs"),
    ),
  );
}

/**
 * @param {string} title
 * @param {HTMLElement[]} children
 * @returns {HTMLElement}
 */
function block(title, ...children) {
  return h("div", { class: "agv-block" }, h("h4", { text: title }), ...children);
}

/**
 * The surest finding over the graph of a failing trace, until it is closed.
 *
 * @param {Store} store
 * @returns {HTMLElement | null}
 */
export function makeBanner(store) {
  const finding = store.scene.findings[0];
  if (!finding || finding.confidence === "hint") return null;
  const close = button("Close", "agv-tool", () => banner.remove(), icon("close"));
  const show = () => {
    store.showFinding(0);
    store.show("findings");
  };
  const count = store.scene.findings.length;
  const why = h("div", { class: "agv-clamp" }, explanation(finding.explanation));
  const banner = h(
    "div",
    { class: "agv-banner", attrs: { role: "status" } },
    h(
      "div",
      { class: "agv-banner-title" },
      h("span", { class: "agv-mutation" }, icon("failed", "agv-icon-16")),
      h("h3", { text: finding.title, title: finding.title }),
      button(
        "Show this finding",
        "agv-link",
        show,
        count > 1 ? `1 of ${count} findings` : "Details",
      ),
      close,
    ),
    h(
      "div",
      { class: "agv-banner-columns" },
      h("div", {}, ...findingSource(store.atlas, finding, 0)),
      h("div", { class: "agv-block agv-banner-why" }, h("h4", { text: "Why" }), why),
      finding.fix !== "" && block("Fix", h("div", { class: "agv-fix-clamp" }, fixOf(finding.fix))),
    ),
  );
  return banner;
}
