// @ts-check
/**
 * The bytes that all checkpointed regions free and the time that they cost, as a table by module and
 * in sentences.
 */

import { SCROLLS, h } from "../../dom.js";
import {
  formatBytes,
  formatCount,
  formatDuration,
  plural,
} from "../../scene/format_numbers_and_names.js";

/** @typedef {import("../../shared_view_state.js").Store} Store */
/** @typedef {import("../../types.js").SceneRegion} Region */

/**
 * Return a table of the bytes that each region frees and of its time.
 *
 * @param {Store} store
 * @param {Region[]} regions
 * @returns {HTMLElement | null} null for one region, and if none was recomputed
 */
export function allRegions(store, regions) {
  if (regions.length < 2 || !regions.some(({ recomputes }) => recomputes)) return null;
  const groups = byModule(regions);
  const isRepeated = groups.some(({ members }) => members.length > 1);
  const most = {
    freed: Math.max(1, ...groups.map((each) => each.freed)),
    time: Math.max(1, ...groups.map((each) => each.time)),
  };
  const bar = (/** @type {string} */ hue, /** @type {number} */ share) => {
    const element = h("span", `agv-region-bar ${hue}`);
    element.style.width = `${share <= 1 ? 100 * share : 0}%`;
    return element;
  };
  const cells = (/** @type {[string, number, number, number, number]} */ values) => {
    const [name, freed, time, held, recomputes] = values;
    return [
      h("td", "agv-strong agv-stacked-name", name),
      h(
        "td",
        "agv-right agv-recompute",
        formatBytes(freed),
        bar("agv-recompute", freed / most.freed),
      ),
      h(
        "td",
        "agv-right agv-recompute",
        recomputes ? formatDuration(time) : "not reached",
        bar("agv-recompute", time / most.time),
      ),
      h("td", "agv-right", formatBytes(held)),
      h("td", "agv-right", `${formatCount(recomputes)}×`),
    ];
  };
  const rows = groups.map(({ name, members, freed, time, held }) =>
    h(
      "tr",
      {
        class: members.some(({ index }) => index === store.region) ? "agv-selected" : "",
        onclick: () => store.set("region", members[0].index),
      },
      ...cells([
        members.length > 1 ? `${name} ×${formatCount(members.length)}` : name,
        freed,
        time,
        held,
        members.reduce((sum, { recomputes }) => sum + recomputes, 0),
      ]),
    ),
  );
  if (regions.every(({ parent }) => parent < 0)) {
    const sum = (/** @type {(region: Region) => number} */ valueOf) =>
      regions.reduce((total, region) => total + valueOf(region), 0);
    const total = cells([
      isRepeated ? `sum of ${plural(regions.length, "region")}` : "all regions",
      sum((each) => each.freed_nbytes),
      sum((each) => each.recompute_ns),
      sum((each) => each.held_nbytes),
      sum((each) => each.recomputes),
    ]);
    rows.unshift(h("tr", "agv-regions-total", ...total));
  }
  const names = ["region", "not kept", "recomputed in", "arguments kept", "runs"];
  const head = names.map((name, at) => h("th", at ? "agv-right" : "agv-stacked-name", name));
  return h(
    "section",
    "agv-regions",
    h(
      "div",
      "agv-view-head",
      h("h3", "", "All regions"),
      h(
        "span",
        "agv-muted",
        isRepeated
          ? "a row has the mean of the calls of its module; bytes not kept are a sum over time"
          : "bytes not kept are a sum: the regions are recomputed one after another",
      ),
    ),
    h(
      "div",
      SCROLLS,
      h(
        "table",
        "agv-table agv-table-sorted agv-table-stacked",
        h("thead", {}, h("tr", {}, ...head)),
        h("tbody", {}, ...rows),
      ),
    ),
  );
}

/**
 * Return the regions of each module, or function without one, and the means of its calls.
 *
 * @param {Region[]} regions
 * @returns {{name: string, members: Region[], freed: number, time: number, held: number}[]}
 */
export function byModule(regions) {
  /** @type {Map<string, Region[]>} */
  const groups = new Map();
  for (const region of regions) {
    const name = region.module || region.function;
    groups.set(name, [...(groups.get(name) ?? []), region]);
  }
  return [...groups].map(([name, members]) => {
    const mean = (/** @type {(region: Region) => number} */ valueOf) =>
      Math.round(members.reduce((sum, each) => sum + valueOf(each), 0) / members.length);
    return {
      name,
      members,
      freed: mean((each) => each.freed_nbytes),
      time: mean((each) => each.recompute_ns),
      held: mean((each) => each.held_nbytes),
    };
  });
}

/**
 * Return a sentence on the peak with checkpoints and without them.
 *
 * @param {import("../../types.js").SceneSummary} summary
 * @returns {string} "" if the peak without them is unknown
 */
export function sentenceOfPeaks({ peak_nbytes, older_nbytes, without_checkpoints_nbytes }) {
  if (!without_checkpoints_nbytes) return "";
  const saved = without_checkpoints_nbytes - peak_nbytes;
  const held = `${formatBytes(peak_nbytes + older_nbytes)} are held at the peak with checkpoints`;
  const without = `about ${formatBytes(without_checkpoints_nbytes + older_nbytes)} without`;
  const share = Math.round((100 * saved) / (without_checkpoints_nbytes + older_nbytes));
  return saved > 0
    ? `${held}, ${without}: ${share < 1 ? "<1" : share} % less.`
    : `${held}, ${without}: they do not lower the peak.`;
}

/**
 * Return a sentence on what all regions free and cost.
 *
 * @param {Region[]} regions
 * @returns {string} "" if none was recomputed
 */
export function sentenceOfRegions(regions) {
  const ran = regions.filter(({ parent, recomputes }) => parent < 0 && recomputes);
  if (!ran.length) return "";
  const freed = ran.reduce((sum, each) => sum + each.freed_nbytes, 0);
  const time = ran.reduce((sum, each) => sum + each.recompute_ns, 0);
  const held = ran.reduce((sum, each) => sum + each.held_nbytes, 0);
  const what = `${plural(ran.length, "region")} ${ran.length > 1 ? "keep" : "keeps"}`;
  const kept = held ? `${formatBytes(held)} of arguments` : "no argument";
  const again = `${formatBytes(freed)}, which backward recomputes in ${formatDuration(time)}`;
  return `${what} ${kept} instead of ${again}.`;
}
