// @ts-check
/** Everything about the selection; about the whole recording where nothing is selected. */

import { nodesWithin } from "../../scene/scene_index.js";
import { copyButton } from "../../copy_button.js";
import { button, facts, h, section } from "../../dom.js";
import { findingParts, itemRow, titleOf } from "./parts.js";
import { excerpt } from "../../views/source/excerpt.js";
import { formatBytes, formatDuration, formatPlace, plural } from "../../scene/format.js";
import { icon } from "../../canvas/icons.js";
import { routeTo } from "../../scene/gradient_path.js";
import { storyParts } from "./storage.js";
import { summaryParts } from "./summary.js";
import { LONGEST, more, parameterParts, savedParts } from "./tables.js";

/** @typedef {import("../../store.js").Store} Store */

/**
 * The details panel; it follows the selection.
 *
 * @param {Store} store
 * @returns {HTMLElement}
 */
export function makeDetails(store) {
  const panel = h("aside", { class: "agv-details", attrs: { "aria-label": "Details" } });
  const fill = () => {
    const { selected } = store;
    const parts =
      selected === null
        ? summaryParts(store)
        : selected.kind === "node"
          ? nodeParts(store, selected.index)
          : selected.kind === "storage"
            ? [h("section", { class: "agv-section" }, ...storyParts(store, selected.index))]
            : groupParts(store, selected.index);
    panel.replaceChildren(...parts);
    panel.scrollTop = 0;
  };
  store.subscribe((change) => {
    if (change === "selected") fill();
  });
  fill();
  return panel;
}

/**
 * @param {Store} store
 * @returns {HTMLElement}
 */
function routeButton(store) {
  const show = () => store.selected && store.showRoute(routeTo(store.atlas, store.selected));
  return button("Light the path from the loss (p)", "agv-copy", show, icon("path"), "from loss");
}

/**
 * @param {Store} store
 * @param {number} index
 * @returns {HTMLElement[]}
 */
function nodeParts(store, index) {
  const { atlas } = store;
  const node = store.scene.nodes[index];
  const place = formatPlace(node.filename, node.lineno);
  const failed = node.error || node.state === "failed";
  const number = node.sequence_nr === null ? "" : `#${node.sequence_nr}`;
  const copies = [copyButton("name", node.name)];
  if (node.module) copies.push(copyButton("path", node.module));
  if (node.lineno) copies.push(copyButton("line", `${node.filename}:${node.lineno}`));
  copies.push(routeButton(store));
  const parts = [titleOf(node.name, number, node.module, place, failed, copies)];
  parts.push(...findingParts(store, atlas.findings[index]));
  const ran = { not_run: "not reached", ran: `${node.runs}×`, failed: "failed" }[node.state];
  parts.push(
    section(
      "Node",
      "",
      facts([
        ["forward op", node.op && h("code", { text: node.op })],
        ["output", node.shape && h("code", { text: node.shape })],
        ["backward", ran],
        ["took", node.duration_ns ? formatDuration(node.duration_ns) : ""],
        ["recomputed", node.recomputes ? `${node.recomputes}×` : ""],
        ["wrote", node.wrote && `in place, ${node.wrote}`],
        ["cloned", node.cloned && `${node.cloned}, before a write`],
        ["not finite", node.not_finite],
      ]),
    ),
  );
  if (node.lineno && atlas.source.get(node.filename)?.has(node.lineno)) {
    const mark = { line: node.lineno, kind: /** @type {const} */ ("here"), tag: "", text: "" };
    parts.push(section("Source", place, excerpt(atlas, node.filename, [mark])));
  }
  for (const [title, texts] of /** @type {const} */ ([
    ["Hooks", node.hooks],
    ["Notes", node.notes],
  ])) {
    const lines = texts.map((text) => h("p", { class: "agv-text", text }));
    if (lines.length) parts.push(section(title, String(lines.length), h("div", {}, ...lines)));
  }
  parts.push(...savedParts(store, atlas.chips[index]), ...parameterParts(atlas.pennants[index]));
  parts.push(...neighbourParts(store, index));
  return parts;
}

/**
 * @param {Store} store
 * @param {number} index
 * @returns {HTMLElement[]}
 */
function groupParts(store, index) {
  const { atlas, scene } = store;
  const group = scene.groups[index];
  const nodes = nodesWithin(atlas, index);
  const open = store.open.has(index);
  const saved = nodes.flatMap((node) => atlas.chips[node]);
  const again = saved.some(({ state }) => state === "recomputed") ? ", the rest recomputed" : "";
  const parts = [
    titleOf(group.label, plural(group.node_count, "node"), group.type_name, "", group.error, [
      ...(group.path ? [copyButton("path", group.path)] : []),
      routeButton(store),
    ]),
    section(
      "Group",
      "",
      facts([
        ["path", group.path && h("code", { text: group.path })],
        ["saved", `${formatBytes(group.nbytes)}${again}`],
        ["repeats", group.repeat > 1 ? `${group.repeat} identical blocks` : ""],
        ["checkpoint", group.checkpointed ? `recomputed ${group.recomputes}×` : ""],
        ["backward", { not_run: "not reached", ran: "ran", failed: "failed" }[group.state]],
      ]),
      index > 0 &&
        button(
          open ? "Close" : "Open",
          "agv-button",
          () => store.toggle(index),
          open ? "Close" : "Open",
        ),
    ),
  ];
  parts.push(...findingParts(store, [...new Set(nodes.flatMap((n) => atlas.findings[n]))]));
  parts.push(
    ...savedParts(store, largestFirst(saved, LONGEST)),
    ...parameterParts(nodes.flatMap((n) => atlas.pennants[n])),
  );
  return parts;
}

/**
 * @param {Store} store
 * @param {number} index
 * @returns {HTMLElement[]}
 */
function neighbourParts(store, index) {
  const { atlas } = store;
  /** @type {[string, number[]][]} */
  const sides = [
    ["Gradient from", atlas.users[index]],
    ["Gradient to", atlas.inputs[index]],
  ];
  return sides
    .filter(([, nodes]) => nodes.length)
    .map(([title, nodes]) => {
      const rows = nodes
        .slice(0, LONGEST)
        .map((node) => itemRow(store, node, store.scene.nodes[node].module));
      return section(title, "", h("div", {}, ...rows), more(nodes));
    });
}

/**
 * The largest tensors first; behind those that are listed, order does not matter.
 *
 * @param {import("../../types.js").Chip[]} chips
 * @param {number} count how many are listed
 * @returns {import("../../types.js").Chip[]}
 */
function largestFirst(chips, count) {
  const sizes = chips.map((chip) => chip.nbytes);
  const order = Float64Array.from(sizes).sort();
  const least = order[Math.max(0, order.length - count)] ?? 0;
  const large = chips.filter((_, at) => sizes[at] >= least);
  large.sort((a, b) => b.nbytes - a.nbytes);
  return [...large, ...chips.filter((_, at) => sizes[at] < least)];
}
