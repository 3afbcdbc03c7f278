// @ts-check
/** A short summary of a node, group or storage, for tooltips and screen readers. */

import {
  formatBytes,
  formatCount,
  formatDuration,
  dotted,
  placeOf,
} from "../../scene/format_numbers_and_names.js";
import { groupsAround } from "../../scene/scene_index.js";

import { contentsText, savedText } from "../../scene/sum_and_describe_saved_bytes.js";

/** @typedef {import("../../shared_view_state.js").Item} Item */

/**
 * @param {import("../../types.js").Scene} scene
 * @param {Item} item
 * @returns {string[]} lines; the first one is the title
 */
export function summarizeItem({ nodes, groups, storages }, { kind, index }) {
  const lines = {
    node: () => nodeLines(nodes[index]),
    group: () => groupLines(groups[index]),
    storage: () => storageLines(storages[index]),
  }[kind]();
  return lines.filter((line) => line);
}

/**
 * @param {import("../../types.js").SceneNode} node
 * @returns {string[]}
 */
function nodeLines(node) {
  const place = placeOf(node);
  const backward = {
    not_run: "not reached by backward",
    failed: "failed",
    ran: `ran ${node.runs}×, ${formatDuration(node.duration_ns)}`,
  }[node.state];
  return [
    node.op ? `${node.op} → ${node.name}` : node.name,
    [node.module, place].filter((part) => part).join(" · "),
    [node.shape, backward].filter((part) => part).join(" · "),
    node.writes ? "its write did harm" : "",
    node.wrote ? `wrote in place, ${node.wrote}` : "",
    node.cloned ? `cloned before a write: ${node.cloned}` : "",
    node.recomputes ? `recomputed ${node.recomputes}×` : "",
    node.not_finite,
    ...node.hooks,
    ...node.notes,
  ];
}

/**
 * @param {import("../../types.js").SceneGroup} group
 * @returns {string[]}
 */
function groupLines(group) {
  const saved = savedText(group);
  return [
    group.path || group.label,
    group.type_name,
    dotted([contentsText(group), saved]),
    group.repeat > 1 ? `${formatCount(group.repeat)} identical blocks` : "",
    group.checkpointed ? `checkpointed, recomputed ${group.recomputes}×` : "",
  ];
}

/**
 * @param {import("../../types.js").SceneStorage} storage
 * @returns {string[]}
 */
function storageLines({ name, shape, dtype, nbytes, slots }) {
  return [name, `${dtype} ${shape} · ${formatBytes(nbytes)}`, slots.join(", ")];
}

/**
 * Return the text that a screen reader announces when the selection changes.
 *
 * @param {import("../../shared_view_state.js").Store} store
 * @returns {string} empty without a selection
 */
export function announcement({ selected, sceneIndex, scene, open }) {
  if (!selected) return "";
  const parts = summarizeItem(scene, selected);
  if (selected.kind === "group") {
    const level = groupsAround(sceneIndex, selected.index).length + 1;
    parts.push(open.has(selected.index) ? "open" : "closed", `level ${level}`);
  }
  return parts.join(", ");
}
