// @ts-check
/** What stands beside a region's two runs: what it is, what differed around it, what was raised. */

import { WORDS } from "./diff.js";
import { facts, h, section } from "../../dom.js";
import { findingSource, fixOf } from "../source/excerpt.js";
import { formatCount, formatPlace, plural } from "../../scene/format.js";
import { icon } from "../../canvas/icons.js";
import { surroundings } from "./state_changes.js";

/** @typedef {import("../../store.js").Store} Store */
/** @typedef {import("../../types.js").SceneRegion} Region */

const OUTCOMES = /** @type {Record<string, string>} */ ({
  completed: "completed",
  early_stop: "stopped early: backward had all it needed",
  error: "ended in an error",
});

/**
 * What a region is, and what the marks of its rows mean.
 *
 * @param {Region} region
 * @returns {HTMLElement[]}
 */
export function aboutRegion(region) {
  const place = formatPlace(region.filename, region.lineno);
  const marks = Object.values(WORDS).map(
    ([mark, word]) => /** @type {[string, string]} */ ([mark, word]),
  );
  return [
    section(
      "Region",
      "",
      facts([
        ["function", h("code", { text: region.function })],
        ["entered", place && h("code", { text: place })],
        ["variant", region.reentrant ? "reentrant" : "non-reentrant"],
        ["early stop", region.early_stop ? "on" : "off"],
        ["options", region.options && h("code", { text: region.options })],
        ["saves", plural(region.saved, "tensor")],
        ["recomputed", `${region.recomputes}×`],
        ["last one", OUTCOMES[region.outcome] ?? region.outcome],
      ]),
    ),
    section("Marks", "", h("div", { class: "agv-marks" }, facts(marks))),
  ];
}

/**
 * The finding that a region's difference led to, above its rows.
 *
 * @param {Store} store
 * @param {Region} region
 * @returns {HTMLElement | null}
 */
export function findingOf({ scene, atlas }, region) {
  const finding = scene.findings.find((each) => each.region === region.index);
  if (!finding) return null;
  const title = h(
    "div",
    { class: "agv-banner-title" },
    h("span", { class: "agv-mutation" }, icon("failed", "agv-icon-16")),
    h("h3", { text: finding.title }),
    h("span", { class: "agv-pill", text: finding.slug }),
    h("span", { class: "agv-pill", text: finding.confidence }),
  );
  const columns = h(
    "div",
    { class: "agv-banner-columns" },
    h("div", {}, ...findingSource(atlas, finding, 0)),
    finding.fix !== "" &&
      h("div", { class: "agv-block" }, h("h4", { text: "Fix" }), fixOf(finding.fix)),
  );
  return h("div", { class: "agv-banner" }, title, columns);
}

/**
 * What was not the same around the two runs, in what they saved, and what PyTorch said to it.
 *
 * @param {Store} store
 * @param {Region} region
 * @returns {HTMLElement[]}
 */
export function besideRuns({ scene }, region) {
  const changes = scene.changes.filter((change) => change.region === region.index);
  const saved = scene.saved_diffs.filter((row) => row.region === region.index);
  const parts = [...surroundings(changes)];
  if (saved.length) parts.push(savedParts(saved, region));
  const { error_type: type, error_message: message } = scene.summary;
  const ours = scene.findings.some((finding) => finding.region === region.index);
  if (type && (ours || region.outcome === "error")) {
    const words = h("p", { class: "agv-text agv-raised", text: message });
    parts.push(section("What PyTorch raised", type.split(".").at(-1) ?? "", words));
  }
  return parts;
}

/**
 * @param {import("../../types.js").SceneSavedDiff[]} rows
 * @param {Region} region
 * @returns {HTMLElement}
 */
function savedParts(rows, region) {
  const head = ["#", "saved for", "forward", "recompute"].map((text) => h("th", { text }));
  const body = rows.map(({ position, slot, before, after }) => {
    const [short, changed] = withoutCommon(before, after);
    return h(
      "tr",
      {},
      h("td", { class: "agv-muted", text: String(position) }),
      h("td", { text: slot }),
      h("td", { class: "agv-mono", text: short, title: before }),
      h("td", { class: "agv-mono agv-mutation", text: changed, title: after }),
    );
  });
  const table = h(
    "table",
    { class: "agv-table" },
    h("thead", {}, h("tr", {}, ...head)),
    h("tbody", {}, ...body),
  );
  const count = `${formatCount(rows.length)} of ${formatCount(region.saved)}`;
  return section("Saved tensors that differ", count, h("div", { class: "agv-scroll" }, table));
}

/**
 * Two descriptions without the type, where that is the same.
 *
 * @param {string} before
 * @param {string} after
 * @returns {[string, string]}
 */
function withoutCommon(before, after) {
  const type = before.split(" ")[0];
  if (type !== after.split(" ")[0] || type === "not") return [before, after];
  return [before.slice(type.length + 1), after.slice(type.length + 1)];
}
