// @ts-check
/** What checkpointing each module frees and costs, or would. */

import { h } from "../../dom.js";
import { formatBytes, formatDuration } from "../../scene/format.js";
import { icon } from "../../canvas/icons.js";

/** @typedef {import("../../types.js").SceneModule} SceneModule */

const SHOWN = 200;

/**
 * @param {import("../../store.js").Store} store
 * @returns {HTMLElement}
 */
export function makeAdvice(store) {
  const modules = store.scene.modules.filter((module) => module.frees_nbytes > 0);
  modules.sort((a, b) => b.frees_nbytes - a.frees_nbytes);
  if (!modules.length) {
    const text = "Checkpointing would free nothing here: no module keeps what it made itself.";
    return h("p", { class: "agv-empty-words", text });
  }
  const most = modules[0].frees_nbytes;
  const group = new Map(store.scene.groups.map((each) => [each.path, each.index]));
  const rows = modules.slice(0, SHOWN).map((module) => {
    const index = group.get(module.path);
    const go = () => index !== undefined && store.reveal({ kind: "group", index });
    const bar = h("span", { class: "agv-table-bar" });
    bar.style.width = `${Math.max(1, (module.frees_nbytes / most) * 60)}px`;
    return h(
      "tr",
      { onclick: go },
      h("td", { class: "agv-strong agv-clip", text: module.path, title: module.type_name }),
      h(
        "td",
        { class: module.checkpointed ? "agv-recompute" : "agv-muted" },
        ...(module.checkpointed
          ? [h("span", { class: "agv-inline" }, icon("checkpoint"), "checkpointed")]
          : ["would"]),
      ),
      h("td", { class: "agv-right" }, formatBytes(module.frees_nbytes), bar),
      h("td", { class: "agv-right", text: costWords(module) }),
      h("td", { class: "agv-right", text: rateWords(module) }),
      h("td", { class: "agv-right agv-muted", text: formatDuration(module.backward_ns) }),
    );
  });
  const head = ["module", "", "frees", "costs again", "frees for 1 ms", "its backward"].map(
    (text) => h("th", { text, class: ["module", ""].includes(text) ? "" : "agv-right" }),
  );
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
function costWords({ costs_ns, checkpointed }) {
  if (costs_ns) return formatDuration(costs_ns);
  return checkpointed ? "not yet" : "unknown";
}

/**
 * @param {SceneModule} module
 * @returns {string}
 */
function rateWords({ costs_ns, frees_nbytes }) {
  return costs_ns ? formatBytes(frees_nbytes / (costs_ns / 1e6)) : "";
}
