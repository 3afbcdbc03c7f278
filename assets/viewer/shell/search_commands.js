// @ts-check
/** The commands of the search field, which begin with ">". */

import { COLORS } from "../scene/graph_colorings.js";

/** @typedef {import("../shared_view_state.js").Store} Store */
/** @typedef {[title: string, run: () => unknown]} Command */

/**
 * @param {Store} store
 * @param {import("../views/registry.js").View[]} views
 * @param {Record<string, () => unknown>} others by title
 * @returns {Command[]}
 */
export function listCommands(store, views, others) {
  const { scene } = store;
  const shown = views.filter(({ exists }) => exists?.(scene) !== false);
  const colors = COLORS.filter((name) => name !== "change" || scene.comparison_rows.length > 0);
  const { selected } = store;
  const name = selected?.kind === "node" && scene.nodes[selected.index].name;
  return [
    ...shown.map(
      (view) => /** @type {Command} */ ([`Show ${view.label}`, () => store.set("view", view.name)]),
    ),
    ...(name
      ? [/** @type {Command} */ ([`Why: ${name}`, () => store.ask(`node ${selected.index}`, name)])]
      : []),
    ...colors.map(
      (color) =>
        /** @type {Command} */ ([
          `Color by ${color}`,
          () => {
            store.set("view", "graph");
            store.set("colorBy", color);
          },
        ]),
    ),
    ...(scene.steps.length > 1
      ? [
          /** @type {Command} */ (["Show all steps", () => store.showStep(-1)]),
          ...[...scene.steps].map(
            ({ number }, at) =>
              /** @type {Command} */ ([`Show step ${number}`, () => store.showStep(at)]),
          ),
        ]
      : []),
    ...Object.entries(others),
  ];
}

/** Larger groups are not opened with all others. */
const MAX_OPENED = 400;

/**
 * Open or close all groups of the graph.
 *
 * @param {Store} store
 * @param {boolean} open
 */
export function openGroups(store, open) {
  for (const { index, node_count } of [...store.scene.groups]) {
    if (index && (!open || node_count <= MAX_OPENED)) store.toggle(index, open);
  }
}
