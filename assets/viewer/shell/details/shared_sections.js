// @ts-check
/** Sections that the details of nodes, groups and the recording share. */

import { button, h, placeText } from "../../dom.js";
import { findingSource, fixBlock } from "../../views/findings/finding_sections.js";
import { whyButton } from "./why_trail.js";
import { formatPlace, placeOf } from "../../scene/format_numbers_and_names.js";
import { icon } from "../../canvas/draw_icon.js";
import { stoppedNode } from "../../scene/state_at_replayed_time.js";
import { stackOf } from "../../scene/source_line_costs.js";

/** @typedef {import("../../shared_view_state.js").Store} Store */

/**
 * @param {string} title
 * @param {string} aside
 * @param {string} subtitle
 * @param {string} place
 * @param {boolean} failed
 * @param {HTMLElement[]} buttons
 * @returns {HTMLElement}
 */
export function titleSection(title, aside, subtitle, place, failed, buttons = []) {
  return h(
    "header",
    "agv-section agv-details-title",
    h(
      "div",
      "agv-title-line",
      failed && h("span", "agv-mutation", icon("failed", "agv-icon-16")),
      h("h3", { text: title, title }),
      h("span", "agv-muted", aside),
    ),
    (subtitle || place) !== "" &&
      h(
        "div",
        "agv-title-line agv-muted",
        h("span", { class: "agv-grow", text: subtitle, title: subtitle }),
        h("span", "agv-mono", place),
      ),
    buttons.length > 0 && h("div", "agv-copy-buttons", ...buttons),
  );
}

/**
 * Return the calls that led to a line, each of which opens its line.
 *
 * @param {Store} store
 * @param {number} frame -1 if unknown
 * @param {string} title
 * @returns {HTMLElement[]} the title, then one for each call, innermost first; empty if unknown
 */
export function stackList(store, frame, title) {
  const stack = stackOf(store.scene, frame);
  if (!stack.length) return [];
  const rows = stack.map(({ filename, lineno, function: name }) => {
    const place = formatPlace(filename, lineno);
    const show = () => store.showLine(filename, lineno);
    const text = store.sceneIndex.source.get(filename)?.get(lineno)?.trim() ?? "";
    const called = h("span", { class: "agv-muted agv-end", text: name, title: name });
    const row = button(
      `Show ${place}`,
      "agv-item agv-call",
      show,
      h("code", "", placeText(place)),
      called,
    );
    if (text) row.title = text;
    return row;
  });
  return [h("h4", "", title), ...rows];
}

/**
 * @param {Store} store
 * @param {number[]} findings
 * @param {"h3" | "h4"} [level] of their titles
 * @returns {HTMLElement[]}
 */
export function findingSections(store, findings, level = "h4") {
  const count = store.scene.findings.length;
  return findings.map((at) => {
    const finding = store.scene.findings[at];
    const show = () => store.showFinding(at);
    const card = h(
      "div",
      `agv-card agv-${finding.confidence}`,
      h(level, "agv-card-title", finding.title),
      ...findingSource(store.sceneIndex, finding, 1),
      finding.fix && fixBlock(finding.fix),
      h("p", "agv-text agv-clamp", sentences(finding.explanation)),
      stoppedBefore(store.scene, finding) &&
        h("p", "agv-text", stoppedBefore(store.scene, finding)),
      h(
        "div",
        "agv-buttons",
        button(
          "Show this finding",
          "agv-link",
          show,
          count > 1 ? `Show this finding, ${at + 1} of ${count}` : "Show this finding",
        ),
        ...whyOfFinding(store, at),
      ),
    );
    return h("section", "agv-section", card);
  });
}

/**
 * Return a sentence on the node of a finding and the one at which backward stopped.
 *
 * @param {import("../../types.js").Scene} scene
 * @param {import("../../types.js").SceneFinding} finding
 * @returns {string} "" if it is one node
 */
export function stoppedBefore(scene, { nodes: [at] }) {
  const failed = scene.nodes[stoppedNode(scene)];
  const node = scene.nodes[at];
  if (!failed || !node || failed.index === at || node.runs_ns.length) return "";
  const place = failed.lineno ? ` (${placeOf(failed)})` : "";
  return `Backward stopped at ${failed.name}${place}, before it reached ${node.name}.`;
}

/**
 * @param {Store} store
 * @param {number} ref index of a finding
 * @param {string} [className]
 * @returns {(HTMLElement | false)[]} buttons
 */
export function whyOfFinding(store, ref, className = "agv-link") {
  const hasStory = [...store.scene.stories].some(({ finding }) => finding === ref);
  return [
    hasStory && button("Tell the story", className, () => store.tell(ref)),
    whyButton(store, `finding ${ref}`, store.scene.findings[ref].title, className),
  ];
}

/**
 * Return the sentences of an explanation, without its excerpts.
 *
 * @param {string} explanation
 * @returns {string}
 */
function sentences(explanation) {
  const lines = explanation.split("\n");
  const texts = lines.map((line, at) => {
    if (/^\s/.test(line)) return "";
    const [, place] = /^\s+.*?([^/\\\s]+:\d+)(,|$)/.exec(lines[at + 1] ?? "") ?? [];
    if (!line.endsWith(":") || !place || line.includes(place)) return line.replace(/:$/, ".");
    return / at:$/.test(line)
      ? line.replace(/:$/, ` ${place}.`)
      : line.replace(/:$/, ` (${place}).`);
  });
  return texts.filter(Boolean).join(" ");
}

/**
 * Return a button that reveals a node.
 *
 * @param {Store} store
 * @param {number} index
 * @param {string} aside
 * @param {string} [place] its forward op by default
 * @returns {HTMLElement}
 */
export function nodeLink(store, index, aside, place) {
  const { name, op } = store.scene.nodes[index];
  return button(
    `Show ${name}`,
    "agv-item agv-node-link",
    () => store.reveal({ kind: "node", index }),
    h("span", "agv-backward", name),
    h("span", { class: "agv-muted", text: place ?? op, title: place ?? op }),
    h("span", "agv-muted agv-end", aside),
  );
}
