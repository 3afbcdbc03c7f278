// @ts-check
/**
 * The cells of all ranks and steps as an image of one pixel each, or fewer where they are dense; the
 * values and colors of each coloring.
 */

import { mix } from "../canvas/theme.js";
import { formatBytes, formatDuration, formatNorm } from "../scene/format_numbers_and_names.js";

/** @typedef {import("./types.js").RunScene} RunScene */
/** @typedef {import("./selected_rank_and_coloring.js").Mode} Mode */
/** @typedef {import("../canvas/theme.js").Palette} Palette */

export const RECORDED = 1;
export const ENDED = 2;
export const OTHER_OPS = 4;
export const OTHER_COLLECTIVES = 8;
export const NOT_FINITE = 16;

const LEVELS = 32;

/** @type {Partial<Record<Mode, "time_ms" | "first_ms">>} columns that have another name */
const COLUMNS = { time: "time_ms", first: "first_ms" };

/** @type {Record<Mode, string>} names of the modes */
export const MODES = {
  differences: "differences",
  time: "step time",
  first: "time to first collective",
  saved: "peak saved bytes",
  gradient: "gradient norm",
  loss: "loss",
};

/** @param {Mode} mode */
export const isNorm = (mode) => mode === "loss" || mode === "gradient";

/**
 * @param {Mode} mode
 * @param {number} value
 * @returns {string}
 */
export function formatValue(mode, value) {
  if (mode === "saved") return formatBytes(value);
  return isNorm(mode) ? formatNorm(value) : formatDuration(value * 1e6);
}

/**
 * Return the values of a mode, null for that of differences.
 *
 * @param {RunScene} scene
 * @param {Mode} mode
 * @returns {Float32Array | null}
 */
export function valuesOf({ cells }, mode) {
  return mode === "differences" ? null : cells[COLUMNS[mode] ?? /** @type {"saved"} */ (mode)];
}

export class CellImages {
  /** @type {Map<string, HTMLCanvasElement>} */
  #images = new Map();
  /** @type {Map<Mode, [low: number, high: number] | null>} */
  #ranges = new Map();
  /** @type {Palette | null} */
  #palette = null;

  /** @param {RunScene} scene */
  constructor(scene) {
    this.scene = scene;
  }

  /**
   * Return the values at the ends of the color scale, null if none is known. One of a hundred values
   * is beyond either end.
   *
   * @param {Mode} mode
   * @returns {[low: number, high: number] | null}
   */
  range(mode) {
    let range = this.#ranges.get(mode);
    if (range === undefined) {
      const values = valuesOf(this.scene, mode) ?? new Float32Array();
      const every = Math.max(1, Math.floor(values.length / 20_000));
      const known = values.filter((value, at) => at % every === 0 && Number.isFinite(value)).sort();
      const at = (/** @type {number} */ share) => known[Math.round(share * (known.length - 1))];
      range = known.length ? [at(0.01), at(0.99)] : null;
      this.#ranges.set(mode, range);
    }
    return range;
  }

  /**
   * Return an image with a row for each rank, and a column for each `fold` steps; of these it shows
   * the worst, or the largest value.
   *
   * @param {Mode} mode
   * @param {number} fold
   * @param {Palette} palette
   * @returns {HTMLCanvasElement}
   */
  get(mode, fold, palette) {
    if (palette !== this.#palette) this.#images.clear();
    this.#palette = palette;
    const key = `${mode} ${fold}`;
    let image = this.#images.get(key);
    if (!image) {
      image = this.#draw(mode, fold, palette);
      this.#images.set(key, image);
    }
    return image;
  }

  /**
   * @param {Mode} mode
   * @param {number} fold
   * @param {Palette} palette
   * @returns {HTMLCanvasElement}
   */
  #draw(mode, fold, palette) {
    const { steps, ranks, cells } = this.scene;
    const width = Math.ceil(steps.length / fold);
    const image = document.createElement("canvas");
    image.width = width;
    image.height = ranks.length;
    const ctx = /** @type {CanvasRenderingContext2D} */ (image.getContext("2d"));
    const pixels = ctx.createImageData(width, ranks.length);
    const out = new Uint32Array(pixels.data.buffer);
    const colors = scale(mode, palette).map(littleEndian);
    const values = valuesOf(this.scene, mode);
    const [low, high] = this.range(mode) ?? [0, 1];
    const factor = (LEVELS - 1) / (high - low || 1);
    for (let row = 0; row < ranks.length; row++) {
      const base = row * steps.length;
      for (let column = 0; column < width; column++) {
        const until = Math.min(steps.length, (column + 1) * fold);
        let worst = 0;
        for (let at = column * fold; at < until; at++) {
          const level = values
            ? valueLevel(mode, values[base + at], cells.state[base + at], low, factor)
            : differenceLevel(cells.state[base + at]);
          if (level > worst) worst = level;
        }
        out[row * width + column] = colors[worst];
      }
    }
    ctx.putImageData(pixels, 0, 0);
    return image;
  }
}

/**
 * @param {number} state
 * @returns {number} index into the colors of `scale`
 */
function differenceLevel(state) {
  if (!(state & RECORDED)) return 0;
  if (state & (OTHER_COLLECTIVES | NOT_FINITE)) return 4;
  if (state & OTHER_OPS) return 3;
  return state & ENDED ? 1 : 2;
}

/**
 * @param {Mode} mode
 * @param {number} value
 * @param {number} state
 * @param {number} low
 * @param {number} factor
 * @returns {number} index into the colors of `scale`
 */
function valueLevel(mode, value, state, low, factor) {
  if (value === Infinity || (mode === "loss" && state & NOT_FINITE)) return LEVELS + 1;
  if (Number.isNaN(value)) return 0;
  return 1 + Math.max(0, Math.min(LEVELS - 1, Math.round((value - low) * factor)));
}

/**
 * Return the colors of a mode; the first, transparent, is that of unknown values.
 *
 * @param {Mode} mode
 * @param {Palette} palette
 * @returns {string[]}
 */
export function scale(mode, palette) {
  const { surface, text2, mutation, backward } = palette;
  if (mode === "differences") {
    return [
      "",
      mix(text2, surface, 0.3),
      mix(text2, surface, 0.13),
      mix(mutation, surface, 0.5),
      mutation,
    ];
  }
  const levels = Array.from({ length: LEVELS }, (_, at) =>
    mix(backward, surface, 0.09 + (0.83 * at) / (LEVELS - 1)),
  );
  return ["", ...levels, mutation];
}

/**
 * @param {string} color "#rrggbb", or "" for transparent
 * @returns {number} its pixel
 */
function littleEndian(color) {
  if (!color) return 0;
  const rgb = parseInt(color.slice(1), 16);
  return (0xff000000 | ((rgb & 0xff) << 16) | (rgb & 0xff00) | (rgb >> 16)) >>> 0;
}
