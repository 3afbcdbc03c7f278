// @ts-check
/** The findings, and the one on display with its source, explanation and fix. */

import { button, claim, h, listHead, listen } from "../../dom.js";
import { block, explanation, findingSource, fixBlock } from "./parts.js";
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
    this.main = h("div", { class: "agv-main", attrs: { tabindex: 0 } });
    this.element = h(
      "div",
      "agv-split",
      h("aside", "agv-side", listHead("Findings"), this.list),
      this.main,
    );
    listen(this.list, "keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step) return;
      claim(event);
      if (store.scene.findings[store.finding + step]) store.chooseFinding(store.finding + step);
    });
    store.subscribe(["finding"], () => this.#fill());
    this.#fill();
  }

  #fill() {
    const { scene, finding } = this.store;
    this.list.replaceChildren(...scene.findings.map((each, at) => this.#entry(each, at)));
    this.list.hidden = !scene.findings.length;
    const chosen = scene.findings[finding];
    this.main.replaceChildren(
      ...(chosen
        ? [findingCard(this.store, chosen)]
        : [h("p", "agv-empty-text", "No problems were found in this recording.")]),
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
        class: `agv-finding-row ${selected ? "agv-selected" : ""}`,
        attrs: { role: "option", "aria-selected": selected },
        onclick: () => this.store.chooseFinding(at),
      },
      h("div", "agv-strong", finding.title),
      h(
        "div",
        "agv-muted",
        [finding.confidence, findingPlace(finding)].filter(Boolean).join(" · "),
      ),
    );
  }
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
 * @param {Store} store
 * @param {Finding} finding
 * @returns {HTMLElement}
 */
function findingCard(store, finding) {
  const node = finding.nodes[0];
  const show = () => store.reveal({ kind: "node", index: node });
  const compare = () => store.showRegion(finding.region);
  const source = findingSource(store.sceneIndex, finding);
  return h(
    "article",
    "agv-finding",
    h(
      "div",
      "agv-finding-title",
      h("span", "agv-mutation", icon("failed", "agv-icon-16")),
      h("h3", "", finding.title),
      h("span", "agv-pill", finding.slug),
      h("span", "agv-pill", `confidence: ${finding.confidence}`),
    ),
    source.length > 0 && block("Where", ...source),
    block("Why", explanation(finding.explanation)),
    finding.fix !== "" && block("Fix", fixBlock(finding.fix)),
    h(
      "div",
      "agv-buttons",
      node !== undefined && button("Show in the graph", "agv-button", show),
      finding.region >= 0 && button("Compare forward and recomputation", "agv-button", compare),
    ),
  );
}
