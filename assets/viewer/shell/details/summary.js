// @ts-check
/** The whole recording, where nothing is selected. */

import { findingParts, itemRow, titleOf } from "./parts.js";
import { facts, h, section } from "../../dom.js";
import { formatBytes, formatCount, formatDuration, plural } from "../../scene/format.js";

/** @typedef {import("../../store.js").Store} Store */

/**
 * @param {Store} store
 * @returns {HTMLElement[]}
 */
export function summaryParts(store) {
  const { summary, nodes } = store.scene;
  const parts = [
    titleOf(summary.title, "", summary.subtitle, "", summary.error_type !== ""),
    section(
      "Recording",
      "",
      facts([
        ["nodes", formatCount(summary.nodes)],
        ["edges", formatCount(summary.edges)],
        ["operators", formatCount(summary.ops)],
        ["events", formatCount(summary.events)],
        ["backwards", formatCount(summary.backwards)],
        ["storages", `${formatCount(summary.storages)}, peak ${formatBytes(summary.peak_nbytes)}`],
        ["checkpoints", summary.regions ? plural(summary.regions, "region") : ""],
        ["recomputed", summary.recomputations ? `${summary.recomputations}×` : ""],
        ["took", formatDuration(summary.end_ns)],
        ["torch", summary.torch_version],
      ]),
    ),
  ];
  if (summary.error_type) {
    parts.push(
      section(
        "What was raised",
        "",
        h("div", { class: "agv-strong", text: summary.error_type }),
        h("p", { class: "agv-text", text: summary.error_message }),
      ),
    );
  }
  parts.push(...findingParts(store, [...store.scene.findings.keys()]));
  const slow = nodes.filter((node) => node.duration_ns > 0);
  slow.sort((a, b) => b.duration_ns - a.duration_ns);
  if (slow.length) {
    const rows = slow
      .slice(0, 5)
      .map((node) => itemRow(store, node.index, formatDuration(node.duration_ns)));
    parts.push(section("Slowest nodes", "", h("div", {}, ...rows)));
  }
  return parts;
}
