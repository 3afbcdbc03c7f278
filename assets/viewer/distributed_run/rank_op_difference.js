// @ts-check
/** The ops of a rank beside those of another one, around the first op that differs. */

import { h, listen } from "../dom.js";
import { formatCount } from "../scene/format_numbers_and_names.js";

/** @typedef {import("./types.js").OpDifference} OpDifference */

/**
 * Return the ops of two ranks, with a menu of the ranks that differ.
 *
 * @param {import("./types.js").RunScene} scene
 * @returns {{element: HTMLElement, show: (rank: number) => void}}
 */
export function makeOpDifference(scene) {
  const { differences } = scene;
  const body = h("div", "agv-run-ops");
  const menu = h("select", { attrs: { "aria-label": "Ranks" } });
  differences.forEach(({ rank, reference, step }, at) => {
    const text = `rank ${rank} and rank ${reference}, step ${step}`;
    menu.append(h("option", { text, attrs: { value: at } }));
  });
  const fill = () => {
    const found = differences[Number(menu.value)];
    body.replaceChildren(...(found ? [caption(found), table(found)] : []));
  };
  listen(menu, "change", fill);
  fill();
  const show = (/** @type {number} */ rank) => {
    menu.value = String(
      Math.max(
        0,
        differences.findIndex((each) => each.rank === rank),
      ),
    );
    fill();
  };
  const head = h("div", "agv-run-ops-head", menu);
  return { element: h("div", {}, head, body), show };
}

/**
 * @param {OpDifference} difference
 * @returns {HTMLElement}
 */
function caption({ index, step }) {
  const before =
    index === 1 ? "the first op is equal" : `the first ${formatCount(index)} ops are equal`;
  const text = `In step ${step}, ${index ? before : "the first op differs"}.`;
  return h("p", "agv-text agv-muted", text);
}

/**
 * @param {OpDifference} difference
 * @returns {HTMLElement}
 */
function table({ rank, reference, rows }) {
  const head = h(
    "tr",
    {},
    ...[rank, reference].map((each) => h("th", { text: `rank ${each}`, attrs: { scope: "col" } })),
  );
  const cell = (/** @type {string} */ name, /** @type {string} */ place) =>
    h("td", {}, h("div", {}, h("code", "", name || "—"), h("span", "agv-muted", place)));
  return h(
    "table",
    "agv-table",
    h("thead", {}, head),
    h(
      "tbody",
      {},
      ...rows.map(({ own, own_place, other, other_place }) =>
        h(
          "tr",
          own === other ? "" : "agv-run-differs",
          cell(own, own_place),
          cell(other, other_place),
        ),
      ),
    ),
  );
}
