// @ts-check
/** The answer to "why?": steps from the symptom to the cause, beside their source lines. */

import { button, h, onArrows } from "../../dom.js";
import { icon } from "../../canvas/draw_icon.js";
import { formatPlace } from "../../scene/format_numbers_and_names.js";
import { excerpt } from "../../views/source/excerpt.js";

/** @typedef {import("../../shared_view_state.js").Store} Store */
/** @typedef {import("../../shared_view_state.js").Step} Step */

/**
 * @param {Store} store
 * @param {string} subject as in `SceneAnswer`
 * @param {string} target
 * @param {string} [className]
 * @returns {HTMLElement}
 */
export function whyButton(store, subject, target, className = "agv-link") {
  return button(`Why? ${target}`, className, () => store.ask(subject, target), "Why?");
}

/**
 * Return the section of the answer on display, which is hidden without one.
 *
 * @param {Store} store
 * @returns {HTMLElement}
 */
export function makeTrail(store) {
  const list = h("div", { attrs: { role: "listbox", tabindex: 0, "aria-label": "Steps" } });
  const where = h("div", { attrs: { "aria-live": "polite" } });
  const box = h("section", "agv-section agv-trail");
  onArrows(list, (step) => {
    if (store.stations[store.station + step]) store.goTo(store.station + step);
  });
  const close = () => store.showTrail(null);
  const fill = (/** @type {import("../../shared_view_state.js").Change} */ change) => {
    const { trail, stations, proven, station } = store;
    // Keys reach the viewer only while it has the focus.
    if (!trail && box.contains(document.activeElement)) box.parentElement?.focus();
    box.hidden = !trail;
    if (!trail) return;
    const { subject = "", target = "", question = "", to_record } = trail;
    const isFinding = subject.startsWith("finding ");
    const steps = proven.length;
    list.replaceChildren(
      ...stations.map((step, at) => stepRow(store, step, at < steps ? `${at + 1}` : "or", at)),
    );
    where.replaceChildren(...(stations[station] ? stepPlace(store, stations[station]) : []));
    if (change === "station") return;
    box.replaceChildren(
      h(
        "div",
        "agv-title-line",
        h("h3", { text: isFinding ? question : target, title: target }),
        button("Close", "agv-icon-button", close, icon("close")),
      ),
      h("p", "agv-text", isFinding ? "" : question),
      list,
      where,
      h("p", "agv-text", to_record ? `To find out more: ${to_record}` : ""),
    );
    list.hidden = !steps;
    list.focus();
  };
  store.subscribe(["trail", "station"], fill);
  fill("trail");
  return box;
}

/**
 * @param {Store} store
 * @param {Step} step
 * @param {string} number
 * @param {number} at
 * @returns {HTMLElement}
 */
function stepRow(store, { text, filename, lineno, line }, number, at) {
  return h(
    "div",
    {
      class: `agv-cause ${at === store.station ? "agv-selected" : ""}`,
      attrs: { role: "option", "aria-selected": at === store.station },
      onclick: () => store.goTo(at),
    },
    h("span", "agv-cause-number", number),
    h(
      "div",
      {},
      h("div", "", text),
      line && h("code", "", line),
      lineno > 0 && h("div", "agv-muted agv-mono", formatPlace(filename, lineno)),
    ),
  );
}

/**
 * @param {Store} store
 * @param {Step} step
 * @returns {HTMLElement[]} its line among its neighbors, and links to it
 */
function stepPlace(store, step) {
  const { filename, lineno, line } = step;
  const kind = /** @type {const} */ ("selected-line");
  const mark = { line: lineno, kind, tag: "", text: line };
  const links = placeLinks(store, step, "agv-link");
  return lineno ? [excerpt(store.sceneIndex, filename, [mark], 1), links] : [links];
}

/**
 * @param {Store} store
 * @param {Step} step
 * @param {string} className of the buttons
 * @returns {HTMLElement} buttons that show where and when a step happened
 */
export function placeLinks(store, { filename, lineno, time_ns, nodes }, className) {
  const [index] = nodes;
  return h(
    "div",
    "agv-buttons",
    index !== undefined &&
      button("Show in the graph", className, () => store.reveal({ kind: "node", index })),
    time_ns >= 0 && button("Show on the timeline", className, () => store.set("view", "timeline")),
    lineno > 0 && button("Open the source line", className, () => store.showLine(filename, lineno)),
  );
}
