// @ts-check
/** The panels of one region: its properties, its finding, what differed between its two runs. */

import { SCROLLS, h, propertyList, section } from "../../dom.js";
import { findingSource, fixBlock } from "../findings/finding_sections.js";
import { formatCount, plural, placeOf } from "../../scene/format_numbers_and_names.js";
import { icon } from "../../canvas/draw_icon.js";
import { stateChanges } from "./state_changes.js";

/** @typedef {import("../../shared_view_state.js").Store} Store */
/** @typedef {import("../../types.js").SceneRegion} Region */

const OUTCOMES = /** @type {Record<string, string>} */ ({
  completed: "ran all of its forward again",
  early_stop: "stopped early: backward had all its tensors",
  error: "its forward raised an exception",
});

/**
 * Return a region's properties.
 *
 * @param {Region} region
 * @returns {HTMLElement[]}
 */
export function describeRegion(region) {
  const place = placeOf(region);
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
      ]),
    ),
  ];
}

/**
 * Return the finding about a region: the chosen one, or else the first.
 *
 * @param {Pick<Store, "scene" | "finding">} store
 * @param {Region} region
 * @returns {import("../../types.js").SceneFinding | undefined}
 */
export function findingOf({ scene, finding }, region) {
  const found = scene.findings.filter((each) => each.region === region.index);
  return found.find((each) => each === scene.findings[finding]) ?? found[0];
}

/**
 * Return a banner with the finding about a region.
 *
 * @param {Store} store
 * @param {Region} region
 * @param {boolean} withSource whether the source is not displayed elsewhere
 * @returns {HTMLElement | null}
 */
export function regionFinding(store, region, withSource) {
  const finding = findingOf(store, region);
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
    withSource && h("div", {}, ...findingSource(store.sceneIndex, finding, 0)),
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
