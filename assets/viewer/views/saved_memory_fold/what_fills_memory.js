// @ts-check
/**
 * The panel that says what fills the memory, and what else is known of a step; the lines that
 * describe a ribbon.
 */

import { GLYPHS } from "../../canvas/icon_paths.js";
import { icon } from "../../canvas/draw_icon.js";
import { button, h, section, setPressed } from "../../dom.js";
import {
  formatBytes,
  formatCount,
  formatDuration,
  plural,
  unbroken,
  dotted,
  placeOf,
} from "../../scene/format_numbers_and_names.js";
import { columnOf } from "../../payload/lazy_rows.js";
import { bytesAtPeak, kindsHeld } from "../../scene/bytes_of_ribbons_and_folds.js";
import { isStopped, summaryOf } from "../../scene/sum_and_describe_saved_bytes.js";
import {
  kindFill,
  kindOfStorage,
  kindTitles,
  largestKinds,
} from "../../scene/saved_kind_colors.js";
import { phaseTimes, recomputedIn, shareText } from "../../scene/phase_times.js";
import { piecesOfKinds } from "../bar_of_kinds.js";
import { foldKey, namesOf } from "../tensors/storage_rows.js";
import { findingSections } from "../../shell/details/shared_sections.js";
import { factRows } from "../../shell/facts_with_view_links.js";

/** @typedef {import("../../shared_view_state.js").Store} Store */
/** @typedef {import("./ribbon_shape.js").Ribbon} Ribbon */

/**
 * @param {Store} store
 * @param {import("../../types.js").SceneFold} fold
 * @param {Ribbon[]} ribbons of the fold
 * @param {(kind: string) => boolean} light lights the ribbons of a kind, or all again
 * @param {import("../../types.js").SceneBudgetPlan} [plan] on display
 * @param {import("../../scene/predict_memory.js").Held} [held] as it predicts
 * @returns {HTMLElement[]}
 */
export function makeAnswer(store, fold, ribbons, light, plan, held) {
  const { scene } = store;
  const predicted =
    plan &&
    `${formatBytes(plan.peak_nbytes)} predicted at the peak, ${formatBytes(summaryOf(scene, plan.step).peak_nbytes)} as it is${plan.added_ns < 0 ? "" : `: backward recomputes ${formatBytes(plan.recomputed_nbytes)}`}.`;
  const [first, ...others] = (predicted ?? fold.sentence).split(/(?<=\.)\s+(?=[\dA-Z])/);
  const titles = kindTitles(scene);
  const bytesOf = bytesAtPeak(scene, fold, held);
  const kinds = largestKinds(
    scene,
    held ? predictedKinds(scene, held) : kindsHeld(ribbons, bytesOf),
  );
  const total = kinds.reduce((sum, [, nbytes]) => sum + nbytes, 0) || 1;
  // Several that are next to nothing share a line.
  const small = kinds.filter(([, nbytes]) => 200 * nbytes < total);
  const listed = small.length > 1 ? kinds.slice(0, -small.length) : kinds;
  const rest = kinds.slice(listed.length);
  const entries = listed.map(([kind, nbytes]) => {
    const title = titles.get(kind) ?? kind;
    const press = () => {
      const on = light(kind);
      for (const each of entries) setPressed(each, on && each === entry);
    };
    const swatch = h("span", "agv-fold-swatch");
    swatch.style.background = kindFill(scene, kind);
    const entry = button(
      `Light the ribbons of ${title}`,
      "agv-fold-kind",
      press,
      swatch,
      h("span", "agv-grow", title),
      h("b", "", formatBytes(nbytes)),
      h("span", "agv-muted agv-fold-share", shareText(nbytes, total)),
    );
    return entry;
  });
  return [
    ...findingSections(store, scene.findings.length ? [0] : [], "h3"),
    h(
      "section",
      "agv-section",
      h("h3", "agv-fold-answer-title", unbroken(first)),
      ...others.map((text) => h("p", "agv-text", text)),
    ),
    h("section", "agv-section agv-fold-card"),
    section(
      `${plan ? "Predicted" : "Held"} at the peak${plan && fold.label ? " of all backwards" : ""}, by kind`,
      formatBytes(plan ? plan.peak_nbytes : fold.peak_nbytes),
      h("div", "agv-fold-bar", ...piecesOfKinds(scene, new Map(kinds), total)),
      ...entries,
      rest.length > 0 &&
        h(
          "div",
          "agv-fold-kind agv-muted",
          h("span", "agv-fold-swatch"),
          h("span", "agv-grow", plural(rest.length, "other kind")),
          formatBytes(rest.reduce((sum, [, nbytes]) => sum + nbytes, 0)),
          h("span", "agv-fold-share", shareText(rest[0]?.[1] ?? 0, total)),
        ),
    ),
    ...facts(store, fold),
    section(
      "Tensors that keep most",
      `${plan ? "predicted" : "held"} at the peak`,
      ...largest(store, plan ? [...scene.ribbons] : ribbons, bytesOf),
    ),
  ];
}

/**
 * @param {import("../../types.js").Scene} scene
 * @param {import("../../scene/predict_memory.js").Held} held
 * @returns {Map<string, number>} bytes by kind
 */
function predictedKinds(scene, held) {
  /** @type {Map<string, number>} */
  const sums = new Map();
  const names = new Map(scene.saved_kinds.map(({ name, title }) => [title, name]));
  for (const [id, nbytes] of held.atPeak) {
    const kind = held.inputs.has(id) ? "argument" : (names.get(kindOfStorage(scene, id)) ?? "");
    sums.set(kind, (sums.get(kind) ?? 0) + nbytes);
  }
  return sums;
}

/**
 * Return the tensors that hold most at the peak of a fold, identical blocks together: rows of the
 * view of tensors.
 *
 * @param {Store} store
 * @param {Ribbon[]} ribbons of the fold
 * @param {(at: number) => number} bytesOf
 * @returns {HTMLElement[]}
 */
function largest(store, ribbons, bytesOf) {
  const { scene, sceneIndex } = store;
  const ids = columnOf(scene.counted_storages, "storage_id");
  /** @type {Map<string, {nbytes: number, storages: import("../../types.js").SceneStorage[], ribbon: Ribbon}>} */
  const rows = new Map();
  for (const ribbon of ribbons) {
    for (const at of ribbon.members) {
      const nbytes = bytesOf(at);
      if (!nbytes) continue;
      const storage = scene.storages[sceneIndex.storageOf.get(ids[at]) ?? -1];
      const key = storage ? foldKey(storage) : `${ribbon.label} ${placeOf(ribbon)}`;
      const row = rows.get(key) ?? { nbytes: 0, storages: [], ribbon };
      rows.set(key, row);
      row.nbytes += nbytes;
      if (storage) row.storages.push(storage);
    }
  }
  const most = [...rows.values()].sort((a, b) => b.nbytes - a.nbytes).slice(0, 5);
  return most.map(({ nbytes, storages, ribbon }) => {
    const place = ribbon.lineno ? placeOf(ribbon) : "no line";
    const name = storages.length ? namesOf(scene, storages) : ribbon.name;
    const text = dotted([name, name.endsWith(ribbon.label) ? "" : ribbon.label]);
    return button(
      `Open ${place}`,
      "agv-item agv-node-link",
      () => ribbon.lineno && store.showLine(ribbon.filename, ribbon.lineno),
      h("span", { class: "agv-fold-line", text, title: text }),
      h("span", "agv-muted agv-mono agv-fold-place", place),
      h("span", "agv-end", formatBytes(nbytes)),
    );
  });
}

/**
 * Return the facts about the backward that is shown, and about the recording.
 *
 * @param {Store} store
 * @param {import("../../types.js").SceneFold} fold
 * @returns {HTMLElement[]} one section if the recording has one backward
 */
function facts(store, fold) {
  const { findings, folds, steps, summary } = store.scene;
  const { forward_ns, backward_ns } = fold;
  const again = recomputedIn(store.sceneIndex, fold);
  const part = again ? `, of it recomputation ${formatDuration(again)}` : "";
  /** @type {[name: string, ns: number][]} */
  const others = [];
  if (folds.length < 2) {
    const { phases } = phaseTimes(store.sceneIndex, [0, store.sceneIndex.end]);
    const { total = 0, compiled = 0 } = phases.find(({ name }) => name === "optimizer") ?? {};
    others.push(["optimizer", total - compiled]);
    others.push(["compiling", phases.reduce((sum, each) => sum + each.compiled, 0)]);
  }
  const times = [
    `Forward ${formatDuration(forward_ns)}, backward ${formatDuration(backward_ns)}${part}`,
    ...others.flatMap(([name, ns]) => (ns ? `${name} ${formatDuration(ns)}` : [])),
  ].join(", ");
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
    ? [row(unbroken(times), "timeline", h("span", "agv-muted", icon(GLYPHS.timeline)))]
    : [];
  const first = row(
    found,
    "findings",
    h("span", findings.length ? "agv-mutation" : "agv-saved", sign),
  );
  const rows = factRows(store);
  if (folds.length < 2) return [section("This step", "", first, ...time, ...rows)];
  // The picture has the times of its edges.
  return [
    ...(again ? [section("This backward", "", ...time)] : []),
    section(
      `Whole recording${steps.length > 1 ? `, ${summary.steps_text}` : ""}`,
      "",
      first,
      ...rows,
    ),
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
  const place = ribbon.lineno && count === 1 ? placeOf(ribbon) : "";
  const text = place && sceneIndex.source.get(ribbon.filename)?.get(ribbon.lineno)?.trim();
  if (name || place) lines.push(dotted([name, place]));
  if (text) lines.push(text);
  const stopped = isStopped(scene, scene.folds[ribbon.fold].step);
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
