// @ts-check
/** Two recordings: totals, a table of modules and lines, findings and other differences. */

import { choice, h } from "../../dom.js";
import { meansPerStep } from "../../scene/graph_colorings.js";
import { formatCount, unbroken } from "../../scene/format_numbers_and_names.js";
import { panel } from "../panels_and_tables.js";
import { makeFolds, sideOf } from "./folds_side_by_side.js";
import { sentencesOfRuns } from "./sentences_on_difference.js";
import { STATUS, rowsPanel, phasesOf, totals } from "./totals_and_rows_tables.js";

/** @typedef {import("../../shared_view_state.js").Store} Store */
/** @typedef {import("../../types.js").SceneComparisonRow} Row */

/**
 * @param {Store} store
 * @param {() => import("../../canvas/theme.js").Palette} palette
 * @returns {HTMLElement}
 */
export function makeComparison(store, palette) {
  const { summary, comparison_rows } = store.scene;
  const rows = meansPerStep(comparison_rows);
  const titles = [summary.compared_with, summary.title];
  const named = titles[0] === titles[1] ? ["before", "after"] : titles;
  const [before, after] = summary.is_before && named === titles ? titles.reverse() : named;
  const open = (/** @type {string} */ name) => {
    if ((name === "before") !== Boolean(summary.is_before)) {
      store.openRecording(name === "before", -1);
    }
  };
  const folds = makeFolds(palette);
  store.otherScene().then((other) => {
    const own = sideOf(summary.is_before ? before : after, store.scene);
    if (!other) return folds.show([own]);
    const second = sideOf(summary.is_before ? after : before, other);
    folds.show(summary.is_before ? [own, second] : [second, own]);
  });
  const total = rows.find((row) => row.kind === "total");
  const warm = rows[0].left_out.some(Boolean) ? "without the cold first step" : "";
  const show = (/** @type {Row} */ row) => {
    const isBefore = Boolean(summary.is_before);
    const [first, second] = row.first_nodes;
    const own = isBefore ? first : second;
    if (own >= 0) store.reveal({ kind: "node", index: own });
    else if (isBefore ? second >= 0 : first >= 0) {
      store.openRecording(!isBefore, isBefore ? second : first);
    }
  };
  return h(
    "div",
    "agv-compare agv-panel-grid",
    panel(
      "wide",
      [
        h("h3", "", named === titles ? `${before} → ${after}` : titles[0]),
        h("span", "agv-end agv-muted", "other views show"),
        choice(["before", "after"], summary.is_before ? "before" : "after", open),
      ],
      ...sentencesOfRuns(store.scene).map((text, at) =>
        h("p", at ? "agv-difference-more" : "agv-difference", unbroken(text)),
      ),
      h(
        "div",
        "agv-compare-top",
        total ? totals(total, phasesOf(rows), [before, after], warm) : false,
        folds.element,
      ),
    ),
    rowsPanel(rows, show, [before, after], ...differences(store)),
    ...findingsPanel(store),
  );
}

/**
 * @param {Store} store
 * @returns {HTMLElement[]} the findings of both, none if there are none
 */
function findingsPanel({ scene }) {
  const findings = scene.compared_texts.filter(({ kind }) => kind === "finding");
  if (!findings.length) return [];
  const texts = findings.map(({ aspect, what, before, after }) => {
    const [mark, color, meaning] = STATUS[aspect];
    const counts = before === after ? "in both" : `${before} → ${after}`;
    return h(
      "p",
      { title: meaning },
      h("span", color, mark && `${mark} `),
      `${what} `,
      h("span", "agv-muted", counts),
    );
  });
  const body = { class: "agv-panel-body agv-compare-texts", attrs: { tabindex: 0 } };
  return [panel("side", [h("h3", "", "Findings")], h("div", body, ...texts))];
}

/**
 * @param {Store} store
 * @returns {HTMLElement[]} what else differs, as it is printed
 */
function differences({ scene }) {
  const others = scene.compared_texts.filter(({ kind }) => kind === "difference");
  if (!others.length) return [];
  const title = `${formatCount(others.length)} differences of ops and counts`;
  return [
    h(
      "details",
      "agv-compare-texts",
      h("summary", "agv-muted", title),
      ...others.map(({ aspect, what, before, after }, at) =>
        h(
          "div",
          "agv-compare-text",
          aspect !== others[at - 1]?.aspect && h("span", "agv-compare-aspect", aspect),
          h("span", "", what),
          before ? ` ${before} \u2192 ${after}` : `: ${after}`,
        ),
      ),
    ),
  ];
}
