// @ts-check
/** The panel on the right: a card for the selected rank, one for each finding of the run. */

import { CLOSE, FAILED } from "../canvas/icon_paths.js";
import { glyphElement } from "../canvas/draw_icon.js";
import { button, h, listHead, propertyList } from "../dom.js";
import { formatBytes, plural } from "../scene/format_numbers_and_names.js";
import {
  block,
  explanationOf,
  findingSource,
  fixBlock,
} from "../views/findings/finding_sections.js";

/** @typedef {import("./selected_rank_and_coloring.js").RunState} RunState */
/** @typedef {import("./types.js").RunFindingCard} Card */

/** The scene has no other source lines than those of the findings. */
const NO_SOURCE = /** @type {any} */ ({ source: new Map() });

/**
 * @typedef {object} RankActions
 * @property {(rank: number) => void} open shows the own views of a rank
 * @property {(rank: number) => boolean} canOpen
 * @property {(rank: number) => void} compare shows the ops of a rank beside those of another one
 */

/**
 * Return the panel; it follows the selection.
 *
 * @param {RunState} state
 * @param {RankActions} actions
 * @returns {HTMLElement}
 */
export function makeSidePanel(state, actions) {
  const { findings } = state.scene;
  const rank = h("div", { class: "agv-run-rank", attrs: { "aria-live": "polite" } });
  const fill = () => {
    rank.hidden = state.row < 0;
    rank.replaceChildren(...(state.row < 0 ? [] : rankCard(state, actions)));
  };
  state.listeners.push(fill);
  fill();
  const cards = findings.map((finding, at) => findingCard(state, finding, at === 0));
  const none = h("p", "agv-empty-text", "No findings in this run.");
  return h(
    "aside",
    { class: "agv-run-side", attrs: { tabindex: 0, "aria-label": "Findings" } },
    rank,
    listHead("Findings", h("span", "agv-muted", String(findings.length))),
    ...(cards.length ? cards : [none]),
  );
}

/**
 * @param {RunState} state
 * @param {RankActions} actions
 * @returns {(HTMLElement)[]}
 */
function rankCard(state, actions) {
  const { scene } = state;
  const { rank, odd, end, is_complete, host, file, nbytes, reference } = scene.ranks[state.row];
  const ended = h("span", is_complete ? "" : "agv-mutation", end);
  const canOpen = actions.canOpen(rank);
  const has = scene.differences.some((each) => each.rank === rank);
  return [
    h(
      "div",
      "agv-run-rank-title",
      h("h3", "", `Rank ${rank}`),
      button("Clear the selection", "agv-icon-button", () => state.select(-1), glyphElement(CLOSE)),
    ),
    ...odd.map((text) => h("p", "agv-text agv-mutation", text)),
    propertyList([
      ["host", host],
      ["ended", ended],
      ["recording", `${file}, ${formatBytes(nbytes)}`],
    ]),
    h(
      "div",
      "agv-buttons",
      canOpen && button("Open its own views", "agv-button", () => actions.open(rank)),
      has && button(`Compare with rank ${reference}`, "agv-button", () => actions.compare(rank)),
    ),
    ...(canOpen
      ? []
      : [
          h("p", "agv-text agv-muted", "This page does not contain its own views:"),
          h("code", "agv-text", scene.command.replace("{file}", file)),
        ]),
  ];
}

/**
 * @param {RunState} state
 * @param {Card} finding
 * @param {boolean} open
 * @returns {HTMLElement}
 */
function findingCard(state, finding, open) {
  const source = findingSource(NO_SOURCE, finding, 0);
  const rank = finding.ranks[0];
  return h(
    "details",
    { class: "agv-run-finding", attrs: { open: open ? "" : null } },
    h(
      "summary",
      {},
      h("span", "agv-mutation", glyphElement(FAILED, "agv-icon-16")),
      h("span", "agv-grow agv-strong", finding.title),
    ),
    h(
      "div",
      "agv-run-pills",
      h("span", "agv-pill", finding.slug),
      h("span", "agv-pill", finding.confidence),
      button(
        `Select rank ${rank}`,
        "agv-link",
        () => state.selectRank(rank),
        finding.ranks.length === 1 ? `rank ${rank}` : plural(finding.ranks.length, "rank"),
      ),
    ),
    finding.ranks.length > 1 && h("p", "agv-text agv-muted", finding.heading),
    finding.fix !== "" && block("What to change", fixBlock(finding.fix)),
    source.length > 0 && block("Where", ...source),
    block("Why", explanationOf(finding.explanation, finding)),
  );
}
