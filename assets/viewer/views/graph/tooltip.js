// @ts-check
/** What an item says of itself in three lines. */

import { h } from "../../dom.js";
import { formatBytes, formatDuration, formatPlace, plural } from "../../scene/format.js";

/**
 * @param {import("../../scene/scene_index.js").Atlas} atlas
 * @param {import("../../store.js").Item} item
 * @returns {HTMLElement[]}
 */
export function tooltipFor(atlas, item) {
  const { nodes, groups, storages } = atlas.scene;
  const lines = {
    node: () => nodeLines(nodes[item.index]),
    group: () => groupLines(groups[item.index]),
    storage: () => storageLines(storages[item.index]),
  }[item.kind]();
  const [title, ...rest] = lines.filter((line) => line);
  return [
    h("div", { class: "agv-strong", text: title }),
    ...rest.map((line) => h("div", { text: line })),
  ];
}

/**
 * @param {import("../../types.js").SceneNode} node
 * @returns {string[]}
 */
function nodeLines(node) {
  const place = formatPlace(node.filename, node.lineno);
  const ran = {
    not_run: "not reached by backward",
    failed: "failed",
    ran: `ran ${node.runs}×, ${formatDuration(node.duration_ns)}`,
  }[node.state];
  return [
    node.op ? `${node.op} → ${node.name}` : node.name,
    [node.module, place].filter((part) => part).join(" · "),
    [node.shape, ran].filter((part) => part).join(" · "),
    node.writes ? "wrote into a saved tensor" : "",
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
  const saved = group.nbytes ? ` · ${formatBytes(group.nbytes)} saved` : "";
  return [
    group.path || group.label,
    group.type_name,
    plural(group.node_count, "node") + saved,
    group.repeat > 1 ? `${group.repeat} identical blocks` : "",
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
 * Put a tooltip beside a point, inside its holder.
 *
 * @param {HTMLElement} tooltip
 * @param {number} x
 * @param {number} y
 * @param {number} width of the holder
 * @param {number} height
 */
export function placeTooltip(tooltip, x, y, width, height) {
  const right = width - tooltip.offsetWidth - 4;
  tooltip.style.left = `${Math.max(4, Math.min(x + 14, right))}px`;
  const below = y + 18 + tooltip.offsetHeight < height;
  tooltip.style.top = `${below ? y + 18 : Math.max(0, y - tooltip.offsetHeight - 10)}px`;
}
