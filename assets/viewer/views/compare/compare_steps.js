// @ts-check
/** Two steps of the recording, aligned by module and source line. */

import { h, listen } from "../../dom.js";
import { formatDuration, formatNorm } from "../../scene/format_numbers_and_names.js";
import { idleTimes, overlapOf, warmUpText } from "../../scene/idle_and_compile_times.js";
import { panel } from "../panels_and_tables.js";
import { rowsPanel, totals } from "./totals_and_rows_tables.js";
import { makeFolds, sideOf } from "./folds_side_by_side.js";
import { sentenceOfSteps } from "./sentences_on_difference.js";
import { compareSteps } from "./step_comparison_rows.js";

/** @typedef {import("../../shared_view_state.js").Store} Store */

/**
 * @param {Store} store
 * @param {() => import("../../canvas/theme.js").Palette} palette
 * @returns {HTMLElement}
 */
export function makeStepComparison(store, palette) {
  const { scene } = store;
  const last = scene.steps.length - 1;
  let pair = [Math.max(0, last - 1), last];
  const element = h("div", "agv-compare agv-panel-grid");
  const menu = (/** @type {0 | 1} */ place) => {
    const options = [...scene.steps].map(({ number }, at) =>
      h("option", { text: `step ${number}`, attrs: { value: at } }),
    );
    const label = place ? "Second step" : "First step";
    const select = h("select", { attrs: { "aria-label": label } }, ...options);
    select.value = String(pair[place]);
    listen(select, "change", () => {
      pair[place] = Number(select.value);
      draw();
      showFolds();
    });
    return h("label", "agv-menu agv-step-menu", select);
  };
  const head = [h("h3", "", "Steps"), menu(0), h("span", "", "→"), menu(1)];
  const folds = makeFolds(palette);
  /** @returns {import("./totals_and_rows_tables.js").Figure[]} */
  const figures = () => {
    const steps = pair.map((at) => scene.steps[at]);
    const idle = steps.map(({ start_ns, end_ns }) => overlapOf(idleTimes(scene), start_ns, end_ns));
    return [
      ["loss", steps.map(({ loss }) => loss ?? 0), formatNorm],
      ["idle", idle, formatDuration],
    ];
  };
  const draw = () => {
    const rows = compareSteps(store.sceneIndex, pair[0], pair[1]);
    const [total] = rows;
    const warm = pair.includes(0) ? warmUpText(scene.summary) : "";
    const titles = pair.map((at) => `step ${scene.steps[at].number}`);
    const phases = rows.filter(({ kind }) => kind === "phase");
    const show = (/** @type {{first_nodes: number[]}} */ row) => {
      const node = Math.max(...row.first_nodes.slice(1), row.first_nodes[0]);
      if (node >= 0) store.set("selected", { kind: "node", index: node });
    };
    element.replaceChildren(
      panel(
        "wide",
        head,
        h("p", "agv-difference", sentenceOfSteps(rows)),
        h("div", "agv-compare-top", totals(total, phases, titles, warm, figures()), folds.element),
      ),
      rowsPanel(rows, show, titles),
    );
  };
  const showFolds = () =>
    folds.show(pair.map((at) => sideOf(`step ${scene.steps[at].number}`, scene, at)));
  draw();
  showFolds();
  return element;
}
