// @ts-check
/** The panel that says what fills the memory, and what else is known of a step. */

import { GLYPHS, icon } from "../../canvas/glyph_shapes.js";
import { button, h, section } from "../../dom.js";
import {
  formatBytes,
  formatCount,
  formatDuration,
  formatPlace,
  plural,
} from "../../scene/format_numbers_and_names.js";
import { heldBytes, isStopped } from "../../scene/ribbon_bytes_and_colors.js";
import { recomputedIn } from "../../scene/phase_times.js";
import { findingSections } from "../../shell/details/shared_sections.js";
import { factRows } from "../../shell/facts_with_view_links.js";

/** @typedef {import("../../shared_view_state.js").Store} Store */
/** @typedef {import("./ribbon_shape.js").Ribbon} Ribbon */

/**
 * @param {Store} store
 * @param {import("../../types.js").SceneFold} fold
 * @param {Ribbon[]} ribbons of the fold
 * @param {(kind: string) => boolean} light lights the ribbons of a kind, or all again
 * @returns {HTMLElement[]}
 */
export function makeAnswer(store, fold, ribbons, light) {
  const { scene } = store;
  const [first, ...rest] = fold.sentence.split(/(?<=\.)\s+(?=[\dA-Z])/);
  const titles = new Map(scene.saved_kinds.map(({ name, title }) => [name, title]));
  const total = fold.kind_nbytes.reduce((sum, nbytes) => sum + nbytes, 0) || 1;
  const segments = fold.kinds.map((kind, at) => {
    const segment = h("span", { attrs: { "data-kind": kind } });
    segment.style.flexGrow = String(fold.kind_nbytes[at]);
    return segment;
  });
  const entries = fold.kinds.map((kind, at) => {
    const nbytes = fold.kind_nbytes[at];
    const title = titles.get(kind) ?? kind;
    const press = () => {
      const on = light(kind);
      for (const each of entries) each.setAttribute("aria-pressed", String(on && each === entry));
    };
    const entry = button(
      `Light the ribbons of ${title}`,
      "agv-fold-kind",
      press,
      h("span", { class: "agv-fold-swatch", attrs: { "data-kind": kind } }),
      h("span", "agv-grow", title),
      h("b", "", formatBytes(nbytes)),
      h("span", "agv-muted agv-fold-share", shareText(nbytes / total)),
    );
    return entry;
  });
  return [
    ...findingSections(store, scene.findings.length ? [0] : [], "h3"),
    h(
      "section",
      "agv-section",
      h("h3", "agv-fold-answer-title", first),
      ...rest.map((text) => h("p", "agv-text", text)),
    ),
    h("section", "agv-section agv-fold-card"),
    section(
      "Held at the peak, by kind",
      formatBytes(fold.peak_nbytes),
      h("div", "agv-fold-bar", ...segments),
      ...entries,
    ),
    ...facts(store, fold),
    section("Tensors that keep most", "held at the peak", ...largest(store, fold, ribbons)),
  ];
}

/**
 * @param {number} share
 * @returns {string} a percentage
 */
const shareText = (share) => (share < 0.005 ? "<1 %" : `${Math.round(100 * share)} %`);

/**
 * Return the lines whose tensors hold most at the peak of a fold.
 *
 * @param {Store} store
 * @param {import("../../types.js").SceneFold} fold
 * @param {Ribbon[]} ribbons of the fold
 * @returns {HTMLElement[]}
 */
function largest(store, { peak_ns }, ribbons) {
  /** @type {Map<string, {nbytes: number, text: string, place: string, ribbon: Ribbon}>} */
  const lines = new Map();
  for (const ribbon of ribbons) {
    const held = ribbon.elsewhere ? 0 : heldBytes(store.scene, ribbon, peak_ns);
    if (!held) continue;
    const place = ribbon.lineno ? formatPlace(ribbon.filename, ribbon.lineno) : "no line";
    const key = `${place} ${ribbon.label}`;
    const line = lines.get(key) ?? {
      nbytes: 0,
      text: [ribbon.name, ribbon.label].filter(Boolean).join(" · "),
      place,
      ribbon,
    };
    lines.set(key, line);
    if (line.ribbon.name !== ribbon.name) line.text = ribbon.label || line.text; // several tensors
    line.nbytes += held;
  }
  const rows = [...lines.values()].sort((a, b) => b.nbytes - a.nbytes).slice(0, 5);
  return rows.map(({ nbytes, text, place, ribbon }) =>
    button(
      `Open ${place}`,
      "agv-item agv-node-link",
      () => ribbon.lineno && store.showLine(ribbon.filename, ribbon.lineno),
      h("span", { class: "agv-fold-line", text, title: text }),
      h("span", "agv-muted agv-mono agv-fold-place", place),
      h("span", "agv-end", formatBytes(nbytes)),
    ),
  );
}

/**
 * Return the facts about the backward that is shown, and about the recording.
 *
 * @param {Store} store
 * @param {import("../../types.js").SceneFold} fold
 * @returns {HTMLElement[]} one section if the recording has one backward
 */
function facts(store, fold) {
  const { findings, folds, steps } = store.scene;
  const { forward_ns, backward_ns } = fold;
  const again = recomputedIn(store.sceneIndex, fold);
  const part = again ? `, of it recomputation ${formatDuration(again)}` : "";
  const times = `Forward ${formatDuration(forward_ns)}, backward ${formatDuration(backward_ns)}${part}`;
  const row = (/** @type {string} */ text, /** @type {string} */ view, /** @type {Node} */ sign) =>
    h(
      "div",
      "agv-fact",
      sign,
      button(text, "agv-link", () => store.set("view", view)),
    );
  const sign = findings.length ? icon("findings") : icon("check");
  const found = findings.length ? plural(findings.length, "finding") : "No problems found";
  const time = backward_ns
    ? [row(times, "timeline", h("span", "agv-muted", icon(GLYPHS.timeline)))]
    : [];
  const first = row(
    found,
    "findings",
    h("span", findings.length ? "agv-mutation" : "agv-saved", sign),
  );
  const rows = factRows(store);
  if (folds.length < 2) return [section("This step", "", first, ...time, ...rows)];
  const count = steps.length > 1 ? `, ${plural(steps.length, "step")}` : "";
  return [
    ...(time.length ? [section("This backward", "", ...time)] : []),
    section(`Whole recording${count}`, "", first, ...rows),
  ];
}

/**
 * Return the description of a ribbon, its name first.
 *
 * @param {Store} store
 * @param {Ribbon} ribbon
 * @returns {string[]}
 */
export function ribbonLines({ scene, sceneIndex }, ribbon) {
  const { label, name, block, module, count, nbytes, state, saved_ns, read_ns } = ribbon;
  const what = count > 1 ? `${formatCount(count)} ${label}` : label;
  const lines = [`${what} · ${module || block || "model"} · ${formatBytes(nbytes)}`];
  const place = ribbon.lineno && count === 1 ? formatPlace(ribbon.filename, ribbon.lineno) : "";
  const text = place && sceneIndex.source.get(ribbon.filename)?.get(ribbon.lineno)?.trim();
  if (name || place) lines.push([name, place].filter(Boolean).join(" · "));
  if (text) lines.push(text);
  const stopped = isStopped(scene);
  const ends = {
    read: "",
    kept: stopped ? "backward did not reach it" : "no backward read it, and it is still held",
    waiting: "no backward ran after it",
    unread: "freed, and no backward read it",
    broken: ribbon.written_by ? `written by ${ribbon.written_by}` : "not what the forward saved",
  };
  if (ribbon.recomputed) lines.push("freed in the forward, computed again in backward");
  if (ribbon.elsewhere) lines.push("copied elsewhere by hooks: not held here");
  if (read_ns >= 0 && read_ns > saved_ns && count === 1) {
    lines.push(`read ${formatDuration(read_ns - saved_ns)} after it was saved`);
  }
  if (ends[state]) lines.push(ends[state]);
  const slot = count === 1 ? reasonOf(scene, sceneIndex, ribbon) : "";
  if (slot) lines.push(slot);
  return lines;
}

/**
 * @param {import("../../types.js").Scene} scene
 * @param {import("../../scene/scene_index.js").SceneIndex} sceneIndex
 * @param {Ribbon} ribbon
 * @returns {string} why its node saves it, as far as it is known
 */
function reasonOf(scene, sceneIndex, ribbon) {
  const storage = scene.counted_storages[ribbon.members[0] ?? -1];
  const index = storage && sceneIndex.storageOf.get(storage.storage_id);
  const slots = index === undefined ? [] : scene.storages[index].slots;
  return slots.map((slot) => sceneIndex.reasons.get(slot)).find(Boolean) ?? "";
}
