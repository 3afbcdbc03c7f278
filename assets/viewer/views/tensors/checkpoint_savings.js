// @ts-check
/** A table of the memory that checkpointing each module frees, and of the time that it adds. */

import { icon } from "../../canvas/icons.js";
import { h } from "../../dom.js";
import { formatBytes, formatDuration } from "../../scene/format.js";

/** @typedef {import("../../types.js").SceneModule} SceneModule */

const MAX_ROWS = 200;
const HEAD = ["module", "", "memory freed", "time added", "freed per ms", "backward time"];

/**
 * @param {import("../../store.js").Store} store
 * @returns {HTMLElement}
 */
export function makeCheckpointSavings(store) {
  const modules = store.scene.modules.filter((module) => module.frees_nbytes > 0);
  modules.sort((a, b) => b.frees_nbytes - a.frees_nbytes);
  if (!modules.length) {
    const text =
      "Checkpointing would free no memory here: no module saves tensors that it computed itself.";
    return h("p", { class: "agv-empty-text", text });
  }
  const largest = modules[0].frees_nbytes;
  const groups = new Map(store.scene.groups.map((each) => [each.path, each.index]));
  const rows = modules.slice(0, MAX_ROWS).map((module) => {
    const index = groups.get(module.path);
    const show = () => index !== undefined && store.reveal({ kind: "group", index });
    const bar = h("span", { class: "agv-table-bar" });
    bar.style.width = `${Math.max(1, (module.frees_nbytes / largest) * 60)}px`;
    return h(
      "tr",
      { onclick: show },
      h("td", { class: "agv-strong agv-ellipsis", text: module.path, title: module.type_name }),
      h(
        "td",
        { class: module.checkpointed ? "agv-recompute" : "agv-muted" },
        ...(module.checkpointed
          ? [h("span", { class: "agv-inline" }, icon("checkpoint"), "checkpointed")]
          : ["estimated"]),
      ),
      h("td", { class: "agv-right" }, formatBytes(module.frees_nbytes), bar),
      h("td", { class: "agv-right", text: formatCost(module) }),
      h("td", { class: "agv-right", text: formatRate(module) }),
      h("td", { class: "agv-right agv-muted", text: formatDuration(module.backward_ns) }),
    );
  });
  const head = HEAD.map((text, at) => h("th", { text, class: at < 2 ? "" : "agv-right" }));
  return h(
    "div",
    { class: "agv-scroll agv-saved-table" },
    h(
      "table",
      { class: "agv-table agv-table-sorted" },
      h("thead", {}, h("tr", {}, ...head)),
      h("tbody", {}, ...rows),
    ),
  );
}

/**
 * @param {SceneModule} module
 * @returns {string}
 */
function formatCost({ costs_ns, checkpointed }) {
  if (costs_ns) return formatDuration(costs_ns);
  return checkpointed ? "not recomputed" : "unknown";
}

/**
 * @param {SceneModule} module
 * @returns {string} bytes freed for a millisecond of recomputation
 */
function formatRate({ costs_ns, frees_nbytes }) {
  return costs_ns ? formatBytes(frees_nbytes / (costs_ns / 1e6)) : "";
}
