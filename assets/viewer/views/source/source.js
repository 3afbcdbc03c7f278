// @ts-check
/** The recorded source lines with the nodes, saved bytes and time of each. */

import { button, h } from "../../dom.js";
import { formatBytes, formatDuration, formatPlace, plural } from "../../scene/format.js";

/** @typedef {import("../../store.js").Store} Store */

/**
 * @typedef {object} LineCost
 * @property {number[]} nodes
 * @property {number} nbytes
 * @property {number} time of its forward ops and their backward nodes, nanoseconds
 */

/**
 * @param {Store} store
 * @returns {HTMLElement}
 */
export function makeSource(store) {
  const costs = lineCosts(store);
  const files = [...store.sceneIndex.source].filter(([file]) => file);
  const empty = h("p", {
    class: "agv-empty-text",
    text: "This recording has no source lines. record(model, stacks=True) records them.",
  });
  const parts = files.map(([file, lines]) =>
    fileSection(store, file, lines, costs.get(file) ?? new Map()),
  );
  return h("div", { class: "agv-main agv-files" }, ...(parts.length ? parts : [empty]));
}

/**
 * @param {Store} store
 * @returns {Map<string, Map<number, LineCost>>}
 */
function lineCosts({ scene, sceneIndex }) {
  /** @type {Map<string, Map<number, LineCost>>} */
  const files = new Map();
  for (const node of scene.nodes) {
    if (!node.lineno) continue;
    const lines = files.get(node.filename) ?? new Map();
    files.set(node.filename, lines);
    const cost = lines.get(node.lineno) ?? { nodes: [], nbytes: 0, time: 0 };
    lines.set(node.lineno, cost);
    cost.nodes.push(node.index);
    cost.time += node.forward_ns + node.duration_ns;
    for (const { nbytes } of sceneIndex.savedTensors[node.index]) cost.nbytes += nbytes;
  }
  return files;
}

/**
 * @param {Store} store
 * @param {string} file
 * @param {Map<number, string>} lines
 * @param {Map<number, LineCost>} costs
 * @returns {HTMLElement}
 */
function fileSection(store, file, lines, costs) {
  const largest = Math.max(1, ...[...costs.values()].map((cost) => cost.nbytes));
  const numbers = [...lines.keys()].sort((a, b) => a - b);
  const block = h("div", { class: "agv-source agv-source-wide" });
  numbers.forEach((number, at) => {
    if (at && number > numbers[at - 1] + 1) block.append(h("div", { class: "agv-source-gap" }));
    block.append(costLine(store, number, lines.get(number) ?? "", costs.get(number), largest));
  });
  return h(
    "section",
    {},
    h(
      "div",
      { class: "agv-view-head" },
      h("h3", { class: "agv-mono", text: formatPlace(file, 0), title: file }),
      h("span", { class: "agv-muted", text: file }),
    ),
    h("div", { class: "agv-scroll" }, block),
  );
}

/**
 * @param {Store} store
 * @param {number} number
 * @param {string} text
 * @param {LineCost | undefined} cost
 * @param {number} largest bytes of all lines of the file
 * @returns {HTMLElement}
 */
function costLine(store, number, text, cost, largest) {
  const { nodes } = store.scene;
  const failed = cost?.nodes.some((node) => nodes[node].error || nodes[node].state === "failed");
  const writes = cost?.nodes.some((node) => nodes[node].writes);
  const line = h(
    "div",
    { class: `agv-source-line ${writes ? "agv-culprit" : failed ? "agv-victim" : ""}` },
    h("span", { class: "agv-source-number", text: String(number) }),
    h("code", { text: text || " " }),
  );
  if (!cost) return line;
  const bar = h("span", { class: "agv-source-bar" });
  bar.style.width = `${(cost.nbytes / largest) * 60}px`;
  const show = () => store.reveal({ kind: "node", index: cost.nodes[0] });
  line.append(
    h(
      "span",
      { class: "agv-source-tag" },
      bar,
      h("span", { class: "agv-saved", text: cost.nbytes ? formatBytes(cost.nbytes) : "" }),
      h("span", {
        title: "forward and backward",
        text: cost.time ? formatDuration(cost.time) : "",
      }),
      button(
        `Show line ${number} in the graph`,
        "agv-link",
        show,
        plural(cost.nodes.length, "node"),
      ),
    ),
  );
  return line;
}
