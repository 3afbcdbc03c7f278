// @ts-check
/** The outline: the visible part of the graph as a tree, also for screen readers. */

import { button, h, listen, listHead, onResize, pressInTree } from "../../dom.js";
import { formatCount } from "../../scene/format_numbers_and_names.js";
import { icon } from "../../canvas/draw_icon.js";
import { sameItem } from "../../shared_view_state.js";
import { nodesWithin } from "../../scene/scene_index.js";

/** @typedef {import("../../shared_view_state.js").Item} Item */

/**
 * @typedef {object} Row
 * @property {Item} item
 * @property {number} level from 1
 * @property {number} position among its siblings, from 1
 * @property {number} siblings
 */

const ROW_HEIGHT = 21;

/** Modules without a node that are listed. */
const MAX_UNUSED = 6;

/** Number of outlines on the page: element ids must differ. */
let outlines = 0;

export class Outline {
  /** @param {import("../../shared_view_state.js").Store} store */
  constructor(store) {
    this.store = store;
    this.id = `agv-tree-${++outlines}`;
    /** @type {Row[]} */
    this.rows = [];
    this.spacer = h("div", "agv-tree-rows");
    this.tree = h(
      "div",
      { class: "agv-tree", attrs: { role: "tree", tabindex: "0", "aria-label": "Modules" } },
      this.spacer,
    );
    const toggle = button(
      "Show or hide the modules",
      "agv-icon-button agv-outline-toggle",
      () => this.element.classList.toggle("agv-outline-open"),
      icon("down"),
    );
    this.element = h(
      "aside",
      { class: "agv-outline agv-side", attrs: { "aria-label": "Modules" } },
      listHead("Modules", h("span", "agv-muted", "nodes"), toggle),
      this.tree,
      unusedModules(store),
    );
    listen(this.tree, "scroll", () => this.#render());
    listen(this.tree, "click", (event) => this.#click(event));
    listen(this.tree, "keydown", (event) => this.#press(event));
    this.resizer = onResize(this.tree, () => this.#render());
    store.subscribe(["open", "selected", "matches"], (change) => {
      if (change === "open") this.#listRows();
      else this.#scrollToSelected();
      this.#render();
    });
    this.#listRows();
  }

  destroy() {
    this.resizer.disconnect();
  }

  #listRows() {
    this.rows = [{ item: { kind: "group", index: 0 }, level: 1, position: 1, siblings: 1 }];
    this.#listGroup(0, 2);
    this.spacer.style.height = `${this.rows.length * ROW_HEIGHT}px`;
  }

  /**
   * @param {number} group
   * @param {number} level
   */
  #listGroup(group, level) {
    const { groups, nodes } = this.store.scene;
    const { cells, rows } = groups[group];
    const begun = (/** @type {{kind: string, ref: number}} */ { kind, ref }) =>
      kind === "node"
        ? nodes[ref].born_ns
        : nodesWithin(this.store.sceneIndex, ref).reduce(
            (least, at) => Math.min(least, nodes[at].born_ns),
            Infinity,
          );
    const inside = rows
      .flat()
      .map((cell) => cells[cell])
      .filter((cell) => cell.kind === "node" || cell.kind === "group")
      .map((cell) => ({ ...cell, begun: begun(cell) }));
    // In the order of the forward, which the layout of the graph need not have.
    // Backwards are listed as they are drawn: a later one may read what the forward made first.
    const isOfBackwards = inside.some(
      ({ kind, ref }) => kind === "group" && groups[ref].kind === "graph",
    );
    if (!isOfBackwards && inside.every((each) => each.begun >= 0))
      inside.sort((a, b) => a.begun - b.begun);
    inside.forEach(({ kind, ref }, at) => {
      const item = /** @type {Item} */ ({ kind, index: ref });
      this.rows.push({ item, level, position: at + 1, siblings: inside.length });
      if (kind === "group" && this.store.open.has(ref)) this.#listGroup(ref, level + 1);
    });
  }

  /** Create elements for the rows in view; a graph may have 100,000 rows. */
  #render() {
    const first = Math.max(0, Math.floor(this.tree.scrollTop / ROW_HEIGHT) - 4);
    const count = Math.ceil(this.tree.clientHeight / ROW_HEIGHT) + 8;
    const rows = this.rows.slice(first, first + count);
    this.spacer.replaceChildren(...rows.map((row, at) => this.#row(row, first + at)));
    const active = this.#selectedRow();
    if (active < 0) this.tree.removeAttribute("aria-activedescendant");
    else this.tree.setAttribute("aria-activedescendant", `${this.id}-${active}`);
  }

  /** @returns {number} -1 if the selection has no row */
  #selectedRow() {
    return this.rows.findIndex((row) => sameItem(row.item, this.store.selected));
  }

  /**
   * @param {Row} row
   * @param {number} at
   * @returns {HTMLElement}
   */
  #row(row, at) {
    const { kind, index } = row.item;
    const { groups, nodes } = this.store.scene;
    const group = kind === "group" ? groups[index] : null;
    const node = kind === "node" ? nodes[index] : null;
    const selected = sameItem(row.item, this.store.selected);
    const open = this.store.open.has(index);
    const whole = group ? this.#groupName(group) : node?.op || node?.name || "";
    // The number of a call is not cut off.
    const [, name, call] = /^(.*?)( \(\d+ of \d+\))?$/.exec(whole) ?? ["", whole];
    const mark = this.store.sceneIndex.marks.get(`${kind} ${index}`);
    const failed = group ? group.error : node?.error || node?.state === "failed";
    const element = h(
      "div",
      {
        class: `agv-row ${node && this.store.matches?.has(index) ? "agv-match" : ""} ${selected ? "agv-selected" : ""} ${node ? "agv-row-node" : ""}`,
        attrs: {
          id: `${this.id}-${at}`,
          role: "treeitem",
          "data-at": at,
          "aria-level": row.level,
          "aria-posinset": row.position,
          "aria-setsize": row.siblings,
          "aria-selected": selected,
          "aria-expanded": group ? String(open) : null,
        },
      },
      h("span", "agv-expander", group && index > 0 && icon(open ? "down" : "right")),
      h("span", {
        class: "agv-row-label",
        text: name,
        title: group ? group.path : (node?.name ?? ""),
      }),
      call && h("span", "agv-muted", call),
      node && h("span", "agv-row-module", this.#relativeModule(node)),
      group && group.repeat > 1 && h("span", "agv-muted", `×${group.repeat}`),
      group?.checkpointed &&
        h("span", { class: "agv-recompute", title: "checkpointed" }, icon("checkpoint")),
      (node?.writes || node?.wrote) &&
        h(
          "span",
          { class: node.writes ? "agv-mutation" : "agv-muted", title: "in-place write" },
          icon("pencil"),
        ),
      node?.not_finite && h("span", { class: "agv-mutation", title: node.not_finite }, icon("nan")),
      failed
        ? h(
            "span",
            { class: "agv-mutation", title: "failed, or named by a finding" },
            icon("failed"),
          )
        : mark &&
            h(
              "span",
              { class: `agv-mutation ${mark === "path" ? "agv-hint" : ""}`, title: "in a finding" },
              icon("found"),
            ),
      group && h("span", "agv-row-count", formatCount(group.node_count)),
    );
    element.style.top = `${at * ROW_HEIGHT}px`;
    element.style.paddingLeft = `${6 + 12 * (row.level - 1)}px`;
    return element;
  }

  /**
   * @param {import("../../types.js").SceneGroup} group
   * @returns {string} the recording's title for a root without a module
   */
  #groupName({ index, label }) {
    return label || (index ? "" : this.store.scene.summary.title);
  }

  /**
   * Return a node's module relative to its group.
   *
   * @param {import("../../types.js").SceneNode} node
   * @returns {string}
   */
  #relativeModule({ module, group }) {
    const { path } = this.store.scene.groups[group];
    const inside = path && `${module}.`.startsWith(`${path}.`);
    const rest = inside ? module.slice(path.length + 1) : module;
    return rest && `in ${rest}`;
  }

  /** @param {MouseEvent} event */
  #click(event) {
    const target = /** @type {Element} */ (event.target);
    const at = target.closest("[data-at]")?.getAttribute("data-at");
    if (!at) return;
    const { item } = this.rows[Number(at)];
    if (target.closest(".agv-expander") && item.kind === "group") this.store.toggle(item.index);
    this.store.reveal(item);
  }

  /** @param {KeyboardEvent} event */
  #press(event) {
    const at = Math.max(0, this.#selectedRow());
    const { item } = this.rows[at];
    const { store } = this;
    const isOpen = item.kind === "group" ? store.open.has(item.index) : null;
    pressInTree(event, this.rows, at, isOpen, {
      go: (to) => store.reveal(this.rows[to].item),
      toggle: (opens) => (opens || item.index) && store.toggle(item.index, opens),
      enter: () => item.kind === "group" && store.toggle(item.index),
    });
  }

  #scrollToSelected() {
    const at = this.#selectedRow();
    if (at < 0) return;
    const top = at * ROW_HEIGHT;
    const room = this.tree.clientHeight - ROW_HEIGHT;
    const { scrollTop } = this.tree;
    if (top < scrollTop) this.tree.scrollTop = top;
    else if (top > scrollTop + room) this.tree.scrollTop = top - room;
  }
}

/**
 * Return the modules whose parameters no node of the graph uses; each answers why.
 *
 * @param {import("../../shared_view_state.js").Store} store
 * @returns {HTMLElement | string} "" without any
 */
function unusedModules(store) {
  /** @type {Map<string, import("../../types.js").SceneUnusedParameter>} */
  const modules = new Map();
  for (const each of store.scene.unused_parameters) {
    if (!modules.has(each.module)) modules.set(each.module, each);
  }
  if (!modules.size) return "";
  const rows = [...modules].slice(0, MAX_UNUSED).map(([module, { name, state, requires_grad }]) => {
    const { root } = store.scene.summary;
    const label = (module || name).replace(root && `${root}.`, "");
    return button(
      `Why does ${name} have no gradient? ${label} · ${state}`,
      requires_grad ? "agv-unused agv-hint" : "agv-unused",
      () => store.ask(`parameter ${name}`, name),
      h("span", "agv-row-label", label),
      h("span", "", state),
    );
  });
  const rest = modules.size - rows.length;
  return h(
    "div",
    "agv-unused-list",
    ...rows,
    rest > 0 && h("span", "agv-muted", `and ${formatCount(rest)} more`),
  );
}
