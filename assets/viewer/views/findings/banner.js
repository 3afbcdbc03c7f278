// @ts-check
/** The banner above the graph of a failing recording: its most certain finding. */

import { icon } from "../../canvas/icons.js";
import { button, h } from "../../dom.js";
import { block, explanation, findingSource, fixBlock } from "./parts.js";

/** @typedef {import("../../store.js").Store} Store */

/**
 * Return a banner that is removed when it is closed.
 *
 * @param {Store} store
 * @returns {HTMLElement | null} null without a finding that is more than a hint
 */
export function makeBanner(store) {
  const finding = store.scene.findings[0];
  if (!finding || finding.confidence === "hint") return null;
  const close = button("Close", "agv-icon-button", () => banner.remove(), icon("close"));
  const show = () => store.showFinding(0);
  const count = store.scene.findings.length;
  const reason = h("div", { class: "agv-clamp" }, explanation(finding.explanation));
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
      h("div", {}, ...findingSource(store.sceneIndex, finding, 0)),
      h("div", { class: "agv-block agv-banner-reason" }, h("h4", { text: "Why" }), reason),
      finding.fix !== "" &&
        block("Fix", h("div", { class: "agv-fix-clamp" }, fixBlock(finding.fix))),
    ),
  );
  return banner;
}
