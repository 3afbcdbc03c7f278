// @ts-check
/** Details of the recording, displayed while nothing is selected. */

import { findingSections, nodeLink, titleSection } from "./shared_sections.js";
import { MAX_ROWS, moreNote } from "./saved_and_parameter_tables.js";
import { whyButton } from "./why_trail.js";
import { factRowsOfRecording } from "../facts_with_view_links.js";
import { h, section } from "../../dom.js";
import { recomputedByNode } from "../../scene/range_profile.js";
import { inStep, stepOfNode } from "../../scene/step_of_time_or_node.js";
import { columnOf } from "../../payload/lazy_rows.js";
import {
  formatBytes,
  formatCount,
  formatDuration,
  dotted,
  plural,
} from "../../scene/format_numbers_and_names.js";

/** @typedef {import("../../shared_view_state.js").Store} Store */

const MAX_SLOW = 5;

/**
 * @param {import("../../types.js").Scene} scene
 * @returns {string} the part of the model that saves most, "" if that is all of it
 */
function largestPart({ groups, summary: { saved_nbytes: all } }) {
  const [first] = groups
    .filter(({ parent, kind, nbytes }) => !parent && kind !== "step" && nbytes < all)
    .sort((a, b) => b.nbytes - a.nbytes);
  return first?.nbytes
    ? `${first.label} saves ${formatBytes(first.nbytes)} of ${formatBytes(all)}`
    : "";
}

/**
 * @param {Store} store
 * @returns {(HTMLElement | false)[]}
 */
export function recordingDetails(store) {
  const { summary, nodes, answers, steps } = store.scene;
  const { step } = store;
  const parts = [
    titleSection(summary.title, "", largestPart(store.scene), "", summary.error_type !== ""),
    ...findingSections(store, [...store.scene.findings.keys()]),
    store.scene.facts.length > 0 &&
      !summary.error_type &&
      section("What it shows", "", ...factRowsOfRecording(store)),
  ];
  if (summary.error_type) {
    parts.push(
      section(
        "Exception",
        "",
        h("div", "agv-strong", summary.error_type),
        h("p", "agv-text", summary.error_message),
        whyButton(store, "error", summary.error_type),
      ),
    );
  }
  const unusual = answers.filter((each) => each.subject[0] === "p" && !each.ordinary);
  if (unusual.length && summary.backwards && !summary.error_type) {
    const rows = unusual
      .slice(0, MAX_ROWS)
      .map(({ target, question }) =>
        h(
          "div",
          "agv-question",
          h("code", "agv-grow", target),
          h("span", "agv-muted", question),
          whyButton(store, `parameter ${target}`, target),
        ),
      );
    const count = formatCount(unusual.length);
    parts.push(section("Parameters to look at", count, h("div", {}, ...rows), moreNote(unusual)));
  }
  const durations = columnOf(nodes, "duration_ns");
  /** @type {[at: number, ns: number][]} */
  let slow = [];
  for (let at = 0; at < nodes.length; at++) {
    const least = slow[MAX_SLOW - 1]?.[1] ?? 0;
    if (durations[at] <= least || !inStep(step, () => stepOfNode(store.scene, nodes[at]))) continue;
    const ns = durations[at] - recomputedByNode(store.scene, nodes[at]);
    if (ns <= least) continue;
    slow.push([at, ns]);
    slow = slow.sort((a, b) => b[1] - a[1]).slice(0, MAX_SLOW);
  }
  if (slow.length) {
    const rows = slow.map(([at, ns]) => {
      const name = nodes[at].module || nodes[at].op;
      const [iteration, own] = timesOf(store.scene, at);
      return nodeLink(store, at, formatDuration(ns), dotted([name, iteration, step < 0 && own]));
    });
    const aside = dotted([
      step >= 0 && `step ${steps[step].number}`,
      summary.recomputations && "without recomputation",
    ]);
    parts.push(section("Slowest nodes", aside, h("div", "agv-slow", ...rows)));
  }
  const counts = [
    `${plural(summary.nodes, "node")}${summary.folded_text && ` (${summary.folded_text})`}`,
    plural(summary.ops, "operator"),
    plural(summary.events, "event"),
    summary.torch_version && `torch ${summary.torch_version}`,
  ];
  parts.push(h("section", "agv-section agv-muted", dotted(counts)));
  return parts;
}

/**
 * @param {import("../../types.js").Scene} scene
 * @param {number} node
 * @returns {string[]} the iteration and the step of a node, if there are several
 */
function timesOf({ groups, nodes, steps }, node) {
  let around = groups[nodes[node].group];
  while (around.index && around.kind !== "iteration") around = groups[around.parent];
  const at = steps[1] ? stepOfNode({ steps }, nodes[node]) : -1;
  return [around.index ? around.label : "", at < 0 ? "" : `step ${steps[at].number}`];
}
