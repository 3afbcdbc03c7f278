// @ts-check
/** Marks of the audit on source lines: one glyph for each mechanism, a legend and a filter. */

import { button, h, setPressed } from "../../dom.js";
import { icon } from "../../canvas/draw_icon.js";

/** @typedef {import("../../shared_view_state.js").Store} Store */

/**
 * Return the glyphs of each line, which open its audit entry, and the switches of their legend.
 *
 * @param {Store} store
 * @param {(filename: string, lineno: number) => string} keyOf
 * @param {HTMLElement} files the sections that have the lines
 * @returns {{marks: Map<string, HTMLElement[]>, legend: HTMLElement | false}}
 */
export function makeMarks(store, keyOf, files) {
  const { audit_entries, cause_steps } = store.scene;
  /** @type {Map<string, HTMLElement[]>} */
  const marks = new Map();
  /** @type {Map<string, {glyph: string, meaning: string, own: HTMLElement[]}>} */
  const mechanisms = new Map();
  audit_entries.forEach(({ word, glyph, meaning, steps }, at) => {
    const { filename, lineno, text } = cause_steps[steps[0]];
    if (!lineno) return;
    const key = keyOf(filename, lineno);
    const show = () => store.showEntry(at);
    const mark = button(`${word}: ${text}`, "agv-mark", show, icon({ stroke: glyph }));
    marks.set(key, [...(marks.get(key) ?? []), mark]);
    const { own } = mechanisms.get(word) ?? { own: [] };
    mechanisms.set(word, { glyph, meaning, own: [...own, mark] });
  });
  const switches = [...mechanisms].map(([word, { glyph, meaning, own }]) => {
    const toggle = () => {
      const shown = pressed.getAttribute("aria-pressed") === "false";
      setPressed(pressed, shown);
      for (const mark of own) mark.hidden = !shown;
    };
    const label = `${word}: a line that ${meaning}`;
    const text = ` ${word} ${own.length}`;
    const pressed = button(label, "agv-switch", toggle, icon({ stroke: glyph }), text);
    setPressed(pressed, true);
    return pressed;
  });
  const only = button("Only marked lines", "agv-switch", () => {
    setPressed(only, files.classList.toggle("agv-only-marked"));
  });
  setPressed(only, false);
  const without = withoutLine(store);
  const legend =
    (switches.length > 0 || without.length > 0) &&
    h(
      "div",
      "",
      switches.length > 0 &&
        h("div", "agv-view-head agv-switches", h("span", "agv-muted", "Marks"), ...switches, only),
      without.length > 0 &&
        h("div", "agv-view-head", h("span", "agv-muted", "Of no line"), ...without),
    );
  return { marks, legend };
}

/**
 * Return the entries of the audit that have no line, as of parameters that nothing uses.
 *
 * @param {Store} store
 * @returns {HTMLElement[]} buttons that open the entries
 */
function withoutLine(store) {
  const { audit_entries, cause_steps, unused_parameters } = store.scene;
  const unused = unused_parameters.filter((each) => each.requires_grad).map(({ name }) => name);
  return [...audit_entries].flatMap(({ word, steps }, at) => {
    const { lineno, text } = cause_steps[steps[0]];
    if (lineno) return [];
    const names =
      word === "no gradient" && unused.length ? ` (${unused.slice(0, 4).join(", ")})` : "";
    const show = () => store.showEntry(at);
    return [button(`${text}${names}`, "agv-link", show)];
  });
}
