// @ts-check
/** What ran in the chosen stretch of the timeline, as a table and in short. */

import { choice, facts, h } from "../../dom.js";
import { formatBytes, formatCount, formatDuration } from "../../scene/format.js";
import { keptAt, sumsOf } from "../../scene/range_profile.js";

/** @typedef {[start: number, end: number]} Stretch */

const SHOWN = 60;

export class Sums {
  /** @param {import("../../store.js").Store} store */
  constructor(store) {
    this.store = store;
    /** @type {Stretch | null} */
    this.chosen = null;
    /** @type {import("../../scene/range_profile.js").Grouping} */
    this.grouping = "node";
    this.body = h("div", { class: "agv-panel-body agv-scroll" });
    this.facts = h("div", { class: "agv-story" });
    this.words = h("span", { class: "agv-muted" });
    const group = (/** @type {string} */ name) => {
      this.grouping = /** @type {import("../../scene/range_profile.js").Grouping} */ (name);
      this.fill(this.chosen);
    };
    this.elements = [
      h(
        "section",
        { class: "agv-panel agv-panel-sums" },
        h(
          "div",
          { class: "agv-view-head" },
          h("h3", { text: "Sum" }),
          this.words,
          h("span", { class: "agv-end" }, choice(["node", "module", "line"], "node", group)),
        ),
        this.body,
      ),
      h(
        "section",
        { class: "agv-panel agv-panel-facts" },
        h("div", { class: "agv-view-head" }, h("h3", { text: "Selection" })),
        this.facts,
      ),
    ];
  }

  /** @param {Stretch | null} chosen all of it where null */
  fill(chosen) {
    this.chosen = chosen;
    const { atlas } = this.store;
    const stretch = chosen ?? /** @type {Stretch} */ ([0, atlas.end]);
    const length = stretch[1] - stretch[0];
    const sums = sumsOf(atlas, stretch, this.grouping);
    const from = `${formatDuration(stretch[0])} – ${formatDuration(stretch[1])}`;
    this.words.textContent = chosen ? from : "of the whole recording";
    const head = ["", "phase", "module", "count", "self time", "share", "bytes let go"];
    head[0] = this.grouping;
    const most = Math.max(1, ...sums.map((sum) => sum.time));
    this.body.replaceChildren(
      h(
        "table",
        { class: "agv-table agv-table-sorted" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ...head.map((text, at) =>
              h("th", { text, class: at > 2 && at !== 5 ? "agv-right" : "" }),
            ),
          ),
        ),
        h("tbody", {}, ...sums.slice(0, SHOWN).map((sum) => this.#row(sum, length, most))),
      ),
    );
    this.facts.replaceChildren(facts(this.#factsOf(stretch, sums)));
  }

  /**
   * @param {import("../../scene/range_profile.js").Sum} sum
   * @param {number} length
   * @param {number} most
   * @returns {HTMLElement}
   */
  #row(sum, length, most) {
    const bar = h("span", { class: `agv-share agv-share-${sum.phase}` });
    bar.style.width = `${Math.max(1, (sum.time / most) * 90)}px`;
    const modules = [...sum.modules];
    const where = modules.length > 2 ? `${modules[0]} +${modules.length - 1}` : modules.join(", ");
    const go = () => sum.node >= 0 && this.store.reveal({ kind: "node", index: sum.node });
    return h(
      "tr",
      { onclick: go },
      h("td", { class: "agv-strong agv-clip", text: sum.label }),
      h("td", { class: `agv-phase-${sum.phase}`, text: sum.phase }),
      h("td", { class: "agv-muted agv-clip", text: where, title: modules.slice(0, 20).join("\n") }),
      h("td", { class: "agv-right", text: formatCount(sum.count) }),
      h("td", { class: "agv-right", text: formatDuration(sum.time) }),
      h("td", { class: "agv-nowrap" }, bar, ` ${Math.round((100 * sum.time) / (length || 1))} %`),
      h("td", { class: "agv-right", text: sum.released ? formatBytes(sum.released) : "0" }),
    );
  }

  /**
   * @param {Stretch} stretch
   * @param {import("../../scene/range_profile.js").Sum[]} sums
   * @returns {[string, string][]}
   */
  #factsOf([start, end], sums) {
    const { scene } = this.store;
    const of = (/** @type {string} */ phase) => {
      const some = sums.filter((sum) => sum.phase === phase);
      const count = some.reduce((all, sum) => all + sum.count, 0);
      const time = some.reduce((all, sum) => all + sum.time, 0);
      return count ? `${formatCount(count)}, ${formatDuration(time)}` : "none";
    };
    const kept = `${formatBytes(keptAt(scene, start))} → ${formatBytes(keptAt(scene, end))}`;
    const released = sums.reduce((all, sum) => all + sum.released, 0);
    return [
      ["wall time", formatDuration(end - start)],
      ["forward ops", of("forward")],
      ["backward nodes", of("backward")],
      ["recomputed", of("recompute")],
      ["gradients", of("accumulate")],
      ["optimizer", of("optimizer")],
      ["saved memory", kept],
      ["let go", formatBytes(released)],
    ];
  }
}
