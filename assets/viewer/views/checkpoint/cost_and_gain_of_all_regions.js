// @ts-check
/**
 * The bytes that all checkpointed regions free and the time that they cost, as a table by module and
 * in sentences.
 */

import { SCROLLS, button, h } from "../../dom.js";
import { icon } from "../../canvas/draw_icon.js";
import {
  formatBytes,
  formatCount,
  formatDuration,
  nameRange,
  plural,
} from "../../scene/format_numbers_and_names.js";

import { shareText } from "../../scene/phase_times.js";

/** @typedef {import("../../shared_view_state.js").Store} Store */
/** @typedef {import("../../types.js").SceneRegion} Region */

/** Rows of so many modules of a list are folded. */
const MANY = 3;

/**
 * Return a table of the bytes that each region frees and of its time.
 *
 * @param {Store} store
 * @param {Region[]} regions
 * @returns {HTMLElement | null} null for one region, and if none was recomputed
 */
export function allRegions(store, regions) {
  if (regions.length < 2 || !regions.some(({ recomputes }) => recomputes)) return null;
  const modules = byModule(regions);
  const isRepeated = modules.some(({ members }) => members.length > 1);
  const folded = lists(modules).flatMap((list) =>
    list.length < MANY ? list.map((each) => [each]) : [list],
  );
  const largest = (/** @type {"freed" | "time"} */ key) =>
    Math.max(1, ...folded.map((list) => list.reduce((sum, each) => sum + each[key], 0)));
  const most = { freed: largest("freed"), time: largest("time") };
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
  const rowOf = (
    /** @type {string} */ name,
    /** @type {typeof modules} */ some,
    /** @type {Node | string} */ mark = "",
  ) => {
    const sum = (/** @type {"freed" | "time" | "held" | "runs"} */ key) =>
      some.reduce((total, each) => total + each[key], 0);
    const members = some.flatMap((each) => each.members);
    const calls = members.length > 1 ? ` · sum of ${plural(members.length, "region")}` : "";
    const row = h(
      "tr",
      {
        class: members.some(({ index }) => index === store.region) ? "agv-selected" : "",
        onclick: () => store.set("region", members[0].index),
      },
      ...cells([name, sum("freed"), sum("time"), sum("held"), sum("runs")]),
    );
    row.firstElementChild?.append(h("span", "agv-muted", calls));
    row.firstElementChild?.prepend(mark);
    return row;
  };
  const rows = folded.flatMap((list) => {
    if (list.length < MANY) return rowOf(list[0].name, list);
    const parts = list.map((each) => rowOf(each.name, [each]));
    const fold = button("Show each region", "agv-icon-button agv-region-fold", (event) => {
      event.stopPropagation();
      setOpen(fold.ariaExpanded !== "true");
    });
    const setOpen = (/** @type {boolean} */ opens) => {
      for (const part of parts) part.hidden = !opens;
      fold.setAttribute("aria-expanded", String(opens));
      fold.replaceChildren(icon(opens ? "down" : "right"));
    };
    setOpen(
      list.some(({ members }) => members.some(({ index }) => index === store.region && index)),
    );
    for (const part of parts) part.classList.add("agv-region-part");
    return [rowOf(nameRange(list[0].name, list[list.length - 1].name), list, fold), ...parts];
  });
  // A single list is their sum.
  if (folded.length > 1 && regions.every(({ parent }) => parent < 0)) {
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
          ? "a row is the sum of the calls of its module; bytes not kept are a sum over time"
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

/** @typedef {{name: string, members: Region[], freed: number, time: number, held: number, runs: number}} ModuleRegions */

/**
 * Return the regions of each module, or function without one, and the sums of its calls.
 *
 * @param {Region[]} regions
 * @returns {ModuleRegions[]}
 */
export function byModule(regions) {
  /** @type {Map<string, Region[]>} */
  const groups = new Map();
  for (const region of regions) {
    const name = region.module || region.function;
    groups.set(name, [...(groups.get(name) ?? []), region]);
  }
  return [...groups].map(([name, members]) => {
    const sum = (/** @type {(region: Region) => number} */ valueOf) =>
      members.reduce((total, each) => total + valueOf(each), 0);
    return {
      name,
      members,
      freed: sum((each) => each.freed_nbytes),
      time: sum((each) => each.recompute_ns),
      held: sum((each) => each.held_nbytes),
      runs: sum((each) => each.recomputes),
    };
  });
}

/**
 * @param {ModuleRegions[]} modules
 * @returns {ModuleRegions[][]} modules of one list, which follow each other, together
 */
function lists(modules) {
  /** @type {ModuleRegions[][]} */
  const found = [];
  const like = (/** @type {string} */ name) => name.replace(/\d+$/, "#");
  for (const each of modules) {
    const last = found.at(-1);
    if (last && /\d$/.test(each.name) && like(last[0].name) === like(each.name)) last.push(each);
    else found.push([each]);
  }
  return found;
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
 * @param {number} [active] time in which something ran, of which the sentence says the share
 * @returns {string} "" if none was recomputed
 */
export function sentenceOfRegions(regions, active = 0) {
  const ran = regions.filter(({ parent, recomputes }) => parent < 0 && recomputes);
  if (!ran.length) return "";
  const freed = ran.reduce((sum, each) => sum + each.freed_nbytes, 0);
  const time = ran.reduce((sum, each) => sum + each.recompute_ns, 0);
  const held = ran.reduce((sum, each) => sum + each.held_nbytes, 0);
  const what = `${plural(ran.length, "region")} ${ran.length > 1 ? "keep" : "keeps"}`;
  const kept = held ? `${formatBytes(held)} of arguments` : "no argument";
  const share = active ? `, ${shareText(time, active)} of the step's active time` : "";
  const again = `${formatBytes(freed)}, which backward recomputes in ${formatDuration(time)}${share}`;
  return `${what} ${kept} instead of ${again}.`;
}
