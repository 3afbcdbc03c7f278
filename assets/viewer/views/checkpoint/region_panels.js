// @ts-check
/** The panels of a region: its properties, its finding, what differed between its two runs. */

import { STATUS_LABELS, differs } from "./diff_table_rows.js";
import { SCROLLS, h, propertyList, section } from "../../dom.js";
import { findingSource, fixBlock } from "../findings/finding_sections.js";
import {
  formatBytes,
  formatCount,
  formatDuration,
  plural,
  placeOf,
} from "../../scene/format_numbers_and_names.js";
import { icon } from "../../canvas/glyph_shapes.js";
import { stateChanges } from "./state_changes.js";

/** @typedef {import("../../shared_view_state.js").Store} Store */
/** @typedef {import("../../types.js").SceneRegion} Region */

const OUTCOMES = /** @type {Record<string, string>} */ ({
  completed: "ran all of its forward again",
  early_stop: "stopped early: backward had all its tensors",
  error: "its forward raised an exception",
});

/**
 * Return a region's properties, and the legend of the symbols in its diff.
 *
 * @param {Region} region
 * @param {boolean} differed whether a finding is about its recomputation
 * @param {import("../../types.js").SceneDiffRow[]} rows of its diff
 * @returns {HTMLElement[]}
 */
export function describeRegion(region, differed, rows) {
  const place = placeOf(region);
  const used = new Set(rows.map(({ status }) => STATUS_LABELS[status]));
  const symbols = Object.values(STATUS_LABELS).filter((label) => used.has(label));
  return [
    section(
      "Region",
      "",
      propertyList([
        ["function", h("code", "", region.function)],
        ["entered", place && h("code", "", place)],
        ["variant", region.reentrant ? "reentrant" : "non-reentrant"],
        ["early stop", region.early_stop ? "on" : "off"],
        ["options", region.options && h("code", "", region.options)],
        ["saves", plural(region.saved, "tensor")],
        ["recomputed", `${region.recomputes}×`],
        ["last run", OUTCOMES[region.outcome] ?? region.outcome],
        ["result", differed ? "differs from the forward" : ""],
      ]),
    ),
    section("Symbols", "", h("div", "agv-diff-symbols", propertyList(symbols))),
  ];
}

/**
 * Return a banner with the finding about a region.
 *
 * @param {Store} store
 * @param {Region} region
 * @param {boolean} withSource whether the source is not displayed elsewhere
 * @returns {HTMLElement | null}
 */
export function regionFinding({ scene, sceneIndex }, region, withSource) {
  const finding = scene.findings.find((each) => each.region === region.index);
  if (!finding) return null;
  const title = h(
    "div",
    "agv-banner-title",
    h("span", "agv-mutation", icon("failed", "agv-icon-16")),
    h("h3", "", finding.title),
    h("span", "agv-pill", finding.slug),
    h("span", "agv-pill", finding.confidence),
  );
  const columns = h(
    "div",
    "agv-banner-columns",
    withSource && h("div", {}, ...findingSource(sceneIndex, finding, 0)),
    finding.fix !== "" && h("div", "agv-block", h("h4", "", "Fix"), fixBlock(finding.fix)),
  );
  return h("div", "agv-banner", title, columns);
}

/**
 * Return the differences between the two runs: state, saved tensors; and the exception.
 *
 * @param {Store} store
 * @param {Region} region
 * @returns {HTMLElement[]}
 */
export function regionDiffs({ scene }, region) {
  const changes = scene.changes.filter((change) => change.region === region.index);
  const saved = scene.saved_diffs.filter((row) => row.region === region.index);
  const parts = [...stateChanges(changes)];
  if (saved.length) parts.push(savedTensorDiffs(saved, region));
  const { error_type: type, error_message: message } = scene.summary;
  const hasFinding = scene.findings.some((finding) => finding.region === region.index);
  if (type && (hasFinding || region.outcome === "error")) {
    const text = h("p", "agv-text agv-exception", message);
    parts.push(section("Exception raised by PyTorch", type.split(".").at(-1) ?? "", text));
  }
  return parts;
}

/**
 * Return a table of the bytes that each region frees and of its time.
 *
 * @param {Store} store
 * @returns {HTMLElement | null} null for one region, and if none was recomputed
 */
export function allRegions(store) {
  const regions = [...store.scene.regions];
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
      h("td", "agv-strong", name),
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
  const head = names.map((name, at) => h("th", at ? "agv-right" : "", name));
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
        "agv-table agv-table-sorted",
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

/**
 * @param {import("../../types.js").SceneSavedDiff[]} rows
 * @param {Region} region
 * @returns {HTMLElement}
 */
function savedTensorDiffs(rows, region) {
  const head = ["#", "saved for", "forward", "recompute"].map((text) => h("th", "", text));
  const body = rows.map(({ position, slot, before, after }) => {
    const [forward, recompute] = dropEqualType(before, after);
    return h(
      "tr",
      {},
      h("td", "agv-muted", String(position)),
      h("td", "", slot),
      h("td", { class: "agv-mono agv-break", text: forward, title: before }),
      h("td", { class: "agv-mono agv-break agv-mutation", text: recompute, title: after }),
    );
  });
  const table = h(
    "table",
    "agv-table",
    h("thead", {}, h("tr", {}, ...head)),
    h("tbody", {}, ...body),
  );
  const count = `${formatCount(rows.length)} of ${formatCount(region.saved)}`;
  return section("Saved tensors that differ", count, h("div", SCROLLS, table));
}

/**
 * Return two descriptions, without their dtypes if those are equal.
 *
 * @param {string} before
 * @param {string} after
 * @returns {[string, string]}
 */
function dropEqualType(before, after) {
  const type = before.split(" ")[0];
  if (type !== after.split(" ")[0] || type === "not") return [before, after];
  return [before.slice(type.length + 1), after.slice(type.length + 1)];
}
