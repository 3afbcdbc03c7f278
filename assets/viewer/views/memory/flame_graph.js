// @ts-check
/** A flame graph of saved memory or of time: module, line, then tensor or op. */

import { hostTheme } from "../../canvas/theme.js";
import { kindHue, kindOfStorage } from "../../scene/fold.js";
import { choice, h } from "../../dom.js";
import {
  formatBytes,
  formatCount,
  formatDuration,
  formatPlace,
  plural,
} from "../../scene/format.js";
import { inStep, isHeldAt, peakIn } from "../../scene/steps.js";
import { panel } from "../panel.js";

/**
 * @typedef {object} Frame
 * @property {string} label
 * @property {"root" | "phase" | "module" | "line" | "leaf"} kind
 * @property {string} phase
 * @property {string} module path of the first module, for selection
 * @property {number} value bytes or nanoseconds
 * @property {number} count
 * @property {import("../../types.js").SceneFlameRow} row the largest one
 * @property {Frame | null} parent
 * @property {Map<string, Frame>} children the earliest first
 */

/** Heights of rows: few ones are higher, so that they fill the panel. */
const MIN_ROW = 25;
const MAX_ROW = 60;
const ALL_ROWS = 400;
const HEAD_HEIGHT = 58;
/** Share of the width below which a frame is not drawn. */
const MIN_SHARE = 0.0012;

export class FlameGraph {
  /** @param {import("../../store.js").Store} store */
  constructor(store) {
    this.store = store;
    this.kind = "memory";
    this.merge = true;
    this.frames = h("div", "agv-flame agv-scroll");
    this.total = h("span", "agv-muted");
    const show = (/** @type {string} */ name) => {
      if (name === "memory" || name === "time") this.kind = name;
      else this.merge = name === "merged";
      this.#build();
    };
    this.element = panel(
      "wide",
      [
        h("h3", "", "Flame graph"),
        this.total,
        h("span", "agv-end", choice(["memory", "time"], "memory", show)),
        choice(["merged", "each block"], "merged", show),
      ],
      this.frames,
    );
    store.subscribe(["step"], () => this.#build());
    this.#build();
  }

  #build() {
    const { scene, step } = this.store;
    const chosen = scene.steps[step];
    const rows =
      chosen && this.kind === "memory"
        ? rowsAtPeak(this.store.sceneIndex, chosen)
        : scene.flame_rows.filter(
            (row) => row.kind === this.kind && (row.step < 0 || inStep(step, () => row.step)),
          );
    this.root = buildFrames(rows, this.merge);
    this.#draw(this.root);
  }

  /**
   * Draw a frame over the entire width, those around it above and those in it below.
   *
   * @param {Frame} frame
   */
  #draw(frame) {
    /** @type {HTMLElement[]} */
    const boxes = [];
    let hidden = 0;
    let depth = 0;
    for (const around of framesAround(frame)) boxes.push(this.#box(around, depth++, 0, 1));
    const lay = (/** @type {Frame} */ each, /** @type {number} */ row, /** @type {number} */ x) => {
      const share = each.value / (frame.value || 1);
      if (share < MIN_SHARE) {
        hidden += 1;
        return;
      }
      boxes.push(this.#box(each, row, x, share));
      for (const child of each.children.values()) {
        lay(child, row + 1, x);
        x += child.value / (frame.value || 1);
      }
    };
    lay(frame, depth, 0);
    const bottom = Math.max(...boxes.map((box) => Number(box.dataset.row))) + 1;
    const row = Math.max(MIN_ROW, Math.min(MAX_ROW, Math.floor(ALL_ROWS / bottom)));
    const area = h("div", "agv-flame-rows", ...boxes);
    area.style.cssText = `height: ${bottom * row}px; --agv-row: ${row}px`;
    // The panel is as high as its rows, if there is room.
    const height = `${Math.max(5, bottom) * row + HEAD_HEIGHT}px`;
    requestAnimationFrame(() =>
      this.element.parentElement?.style.setProperty("--agv-rows", height),
    );
    this.frames.replaceChildren(area);
    const sum = this.#format(this.root?.value ?? 0);
    const what = this.kind === "memory" ? "held at peak" : "of ops, nodes and recomputations";
    const cut = hidden ? `${plural(hidden, "narrow frame")} not drawn` : "";
    const { scene, step } = this.store;
    const chosen = scene.steps[step];
    const divided = this.kind === "memory" || scene.flame_rows.some((row) => row.step >= 0);
    const of = chosen && (divided ? `of step ${chosen.number}` : "of all steps");
    const { older_nbytes, older_steps } = scene.summary;
    const older =
      this.kind === "memory" && older_nbytes
        ? `and ${formatBytes(older_nbytes)} of ${plural(older_steps, "step")} no longer shown`
        : "";
    this.total.textContent = [`${sum} ${what}`, of, older, cut].filter(Boolean).join(" · ");
  }

  /**
   * @param {Frame} frame
   * @param {number} row
   * @param {number} x share of the width
   * @param {number} share
   * @returns {HTMLElement}
   */
  #box(frame, row, x, share) {
    const value = this.#format(frame.value);
    const times = frame.kind === "leaf" && frame.count > 1 ? ` ×${formatCount(frame.count)}` : "";
    const name = `${frame.label}${times}`;
    const place = frame.kind === "line" && frame.row.place ? ` (${frame.row.place})` : "";
    const percent = ((100 * frame.value) / (this.root?.value || 1)).toFixed(1);
    const isArgument = frame.label === "checkpoint argument";
    const hue = this.kind === "time" ? frame.phase : isArgument ? "recompute" : "saved";
    const box = h(
      "button",
      {
        class: `agv-frame agv-frame-${frame.kind} agv-frame-${hue}`,
        title: `${name}${place}: ${value}, ${percent} %`,
        attrs: { type: "button" },
        onclick: () => this.#choose(frame),
      },
      h("span", "", name),
      h("span", "", value),
    );
    if (this.kind === "memory" && frame.kind === "leaf") {
      const kind = kindOfStorage(this.store.scene, frame.row.storage_id);
      const color = kindHue(this.store.scene, kind, hostTheme());
      if (color) box.style.setProperty("--hue", color);
    }
    box.dataset.row = String(row);
    box.style.cssText += `; left: ${100 * x}%; width: calc(${100 * share}% - 1px); top: calc(${row} * var(--agv-row))`;
    return box;
  }

  /**
   * Zoom to a frame and select what it stands for.
   *
   * @param {Frame} frame
   */
  #choose(frame) {
    this.#draw(frame);
    const { scene, sceneIndex } = this.store;
    const storage = sceneIndex.storageOf.get(frame.row?.storage_id);
    const group = scene.groups.find((each) => each.kind === "module" && each.path === frame.module);
    if (frame.kind === "leaf" || frame.kind === "line") {
      if (this.kind === "memory" && storage !== undefined) {
        this.store.set("selected", { kind: "storage", index: storage });
      } else if (frame.row.node >= 0) {
        this.store.set("selected", { kind: "node", index: frame.row.node });
      }
    } else if (frame.kind === "module" && group) {
      this.store.set("selected", { kind: "group", index: group.index });
    }
  }

  /**
   * @param {number} value
   * @returns {string}
   */
  #format(value) {
    return this.kind === "memory" ? formatBytes(value) : formatDuration(value);
  }
}

/**
 * Return the rows of what saved tensors held at the peak of a step, as those of the recording.
 *
 * @param {import("../../scene/scene_index.js").SceneIndex} sceneIndex
 * @param {import("../../types.js").SceneStep} step
 * @returns {import("../../types.js").SceneFlameRow[]}
 */
function rowsAtPeak({ scene, source, savedTensors }, step) {
  const { time } = peakIn(scene, step);
  const held = scene.counted_storages.filter((each) => isHeldAt(each, time));
  return held.map(({ storage_id, nbytes, node, module, filename, lineno }) => {
    const place = formatPlace(filename, lineno);
    const { op, name } = scene.nodes[node] ?? { op: "", name: "not drawn" };
    const slot = savedTensors[node]?.find((each) => each.storage_id === storage_id)?.slot ?? "";
    return {
      kind: "memory",
      phase: "",
      module,
      place,
      line: source.get(filename)?.get(lineno)?.trim() || place || "no line",
      label: `${op || name} ${slot}`.trim(),
      count: 1,
      value: nbytes,
      node,
      storage_id,
      step: -1,
    };
  });
}

/**
 * @param {Frame} frame
 * @returns {Frame[]} the frames around it, the outermost first
 */
function framesAround(frame) {
  const around = [];
  for (let at = frame.parent; at; at = at.parent) around.unshift(at);
  return around;
}

/**
 * @param {import("../../types.js").SceneFlameRow[]} rows
 * @param {boolean} merge add up numbered modules
 * @returns {Frame}
 */
function buildFrames(rows, merge) {
  const [first] = rows;
  /** @type {Frame} */
  const root = newFrame("total", "root", "", "", first, null);
  for (const row of rows) {
    let frame = root;
    let path = "";
    root.value += row.value;
    const enter = (
      /** @type {string} */ label,
      /** @type {Frame["kind"]} */ kind,
      /** @type {string} */ place = "",
    ) => {
      const key = `${kind} ${place} ${label}`;
      const child = frame.children.get(key) ?? newFrame(label, kind, row.phase, path, row, frame);
      frame.children.set(key, child);
      child.value += row.value;
      child.count += row.count;
      if (row.value > child.row.value) child.row = row;
      frame = child;
    };
    if (row.phase) enter(row.phase, "phase");
    for (const part of row.module.match(/[^.]+(\.\d+)*/g) ?? []) {
      path += `${path && "."}${part}`;
      enter(merge ? part.replace(/\.\d+/g, ".*") : part, "module");
    }
    enter(row.line, "line", row.place);
    enter(row.label, "leaf");
  }
  return root;
}

/**
 * @param {string} label
 * @param {Frame["kind"]} kind
 * @param {string} phase
 * @param {string} module
 * @param {import("../../types.js").SceneFlameRow} row
 * @param {Frame | null} parent
 * @returns {Frame}
 */
function newFrame(label, kind, phase, module, row, parent) {
  return { label, kind, phase, module, row, parent, value: 0, count: 0, children: new Map() };
}
