// @ts-check
/** Everything about the selection; about the whole recording where nothing is selected. */

import { nodesWithin } from "./atlas.js";
import { button, facts, h, section } from "./dom.js";
import { excerpt, explanation } from "./excerpt.js";
import { formatBytes, formatCount, formatDuration, formatPlace, plural } from "./format.js";
import { icon } from "./icons.js";
import { storyParts } from "./story.js";
import { LONGEST, more, parameterParts, savedParts } from "./tables.js";

/** @typedef {import("./store.js").Store} Store */

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
 * @param {string} title
 * @param {string} aside
 * @param {string} below
 * @param {string} place
 * @param {boolean} failed
 * @returns {HTMLElement}
 */
function titleOf(title, aside, below, place, failed) {
  return h(
    "header",
    { class: "agv-section agv-title" },
    h(
      "div",
      { class: "agv-title-line" },
      failed && h("span", { class: "agv-mutation" }, icon("failed", "agv-icon-16")),
      h("h3", { text: title, title }),
      h("span", { class: "agv-muted", text: aside }),
    ),
    h(
      "div",
      { class: "agv-title-line agv-muted" },
      h("span", { class: "agv-grow", text: below, title: below }),
      h("span", { class: "agv-mono", text: place }),
    ),
  );
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
  const parts = [titleOf(node.name, number, node.module, place, failed)];
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
      ]),
    ),
  );
  if (node.lineno && atlas.source.get(node.filename)?.has(node.lineno)) {
    const mark = { line: node.lineno, kind: /** @type {const} */ ("here"), tag: "", text: "" };
    parts.push(section("Source", place, excerpt(atlas, node.filename, [mark])));
  }
  if (node.hooks.length) {
    const lines = node.hooks.map((text) => h("p", { class: "agv-text", text }));
    parts.push(section("Hooks", String(lines.length), h("div", {}, ...lines)));
  }
  parts.push(...savedParts(atlas.chips[index]), ...parameterParts(atlas.pennants[index]));
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
  const parts = [
    titleOf(group.label, plural(group.node_count, "node"), group.type_name, "", group.error),
    section(
      "Group",
      "",
      facts([
        ["path", group.path && h("code", { text: group.path })],
        ["saved", formatBytes(group.nbytes)],
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
  const chips = nodes.flatMap((n) => atlas.chips[n]).sort((a, b) => b.nbytes - a.nbytes);
  parts.push(...savedParts(chips), ...parameterParts(nodes.flatMap((n) => atlas.pennants[n])));
  return parts;
}

/**
 * @param {Store} store
 * @returns {HTMLElement[]}
 */
function summaryParts(store) {
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

/**
 * @param {Store} store
 * @param {number[]} findings
 * @returns {HTMLElement[]}
 */
function findingParts(store, findings) {
  return findings.map((at) => {
    const finding = store.scene.findings[at];
    const show = () => {
      store.showFinding(at);
      store.show("findings");
    };
    const card = h(
      "div",
      { class: "agv-card" },
      h("div", { class: "agv-card-title", text: finding.title }),
      explanation(finding.explanation),
      finding.fix && h("pre", { class: "agv-fix", text: finding.fix }),
      button("Show this finding", "agv-link", show, "Show finding"),
    );
    return h("section", { class: "agv-section" }, card);
  });
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
 * A line that selects a node.
 *
 * @param {Store} store
 * @param {number} index
 * @param {string} aside
 * @returns {HTMLElement}
 */
function itemRow(store, index, aside) {
  const { name, op } = store.scene.nodes[index];
  return button(
    `Show ${name}`,
    "agv-item",
    () => store.reveal({ kind: "node", index }),
    h("span", { class: "agv-backward", text: name }),
    h("span", { class: "agv-muted", text: op }),
    h("span", { class: "agv-muted agv-end", text: aside }),
  );
}
