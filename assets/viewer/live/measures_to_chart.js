// @ts-check
/** The measures of the charts: losses, bytes, gradient norms and times of the steps so far. */

/** @typedef {import("./received_steps.js").Step} Step */
/** @typedef {import("./received_steps.js").State} State */

/**
 * @typedef {object} Series
 * @property {string} label
 * @property {(number | null | undefined)[]} values one of each step; null: not finite
 * @property {boolean} isMain
 */

/**
 * @typedef {object} Measure
 * @property {string} name
 * @property {string} hue name of a color of the style sheet
 * @property {Series[]} series
 * @property {string} missing why there is no line
 * @property {boolean} fromZero whether the axis begins at zero
 * @property {(value: number) => string} format
 */

const MOST_LINES = 8;

/**
 * Return the lines to draw, from the steps so far.
 *
 * @param {State} state
 * @param {(nbytes: number) => string} formatBytes
 * @returns {Measure[]}
 */
export function measuresOf(state, formatBytes) {
  const { steps, newest } = state;
  const backwards = Math.max(0, ...steps.map((step) => step.losses.length));
  const losses = Array.from({ length: Math.min(backwards, MOST_LINES) }, (_, place) => ({
    label: backwards > 1 ? `backward ${place + 1}` : "",
    values: steps.map((step) => step.losses[place]),
    isMain: true,
  }));
  const more = backwards > MOST_LINES ? ` (first ${MOST_LINES} of ${backwards} backwards)` : "";
  const waits = steps.length && !steps.some((step) => step.analyzed) ? "not analyzed yet" : "";
  return [
    {
      name: `loss${more}`,
      hue: "path",
      series: losses,
      missing: newest?.noLoss ?? "",
      fromZero: false,
      format: formatNumber,
    },
    {
      name: "saved for backward, at peak",
      hue: "saved",
      series: [line("", (step) => step.saved ?? undefined)],
      missing: waits,
      fromZero: true,
      format: (value) => exactBytes(value, formatBytes),
    },
    {
      name: "gradient norm",
      hue: "backward",
      series: normSeries(steps),
      missing: waits || (newest?.noNorms ?? ""),
      fromZero: true,
      format: formatNumber,
    },
    {
      name: "time of a step",
      hue: "text2",
      series: [line("", (step) => step.ms)],
      missing: "",
      fromZero: true,
      format: (value) => `${value.toFixed(value < 10 ? 2 : 1)} ms`,
    },
  ];

  /**
   * @param {string} label
   * @param {(step: Step) => number | null | undefined} value
   * @returns {Series}
   */
  function line(label, value) {
    return { label, values: steps.map(value), isMain: true };
  }
}

/**
 * @param {number} nbytes
 * @param {(nbytes: number) => string} formatBytes
 * @returns {string} `3.1 MB (3,145,728 B)`
 */
function exactBytes(nbytes, formatBytes) {
  const short = formatBytes(nbytes);
  return short.endsWith(" B") ? short : `${short} (${nbytes.toLocaleString("en")} B)`;
}

/**
 * Return the norm over all modules, and that of each module.
 *
 * @param {Step[]} steps
 * @returns {Series[]}
 */
function normSeries(steps) {
  const names = [...new Set(steps.flatMap((step) => Object.keys(step.norms)))];
  if (!names.length) return [];
  const total = steps.map(({ norms }) => {
    const found = Object.values(norms);
    if (!found.length) return undefined;
    if (found.includes(null)) return null;
    return Math.hypot(.../** @type {number[]} */ (found));
  });
  const parts = names.map((name) => ({
    label: name || "outside of modules",
    values: steps.map((step) => step.norms[name]),
    isMain: false,
  }));
  return [{ label: "all", values: total, isMain: true }, ...(names.length > 1 ? parts : [])];
}

/**
 * @param {number} value
 * @returns {string} all digits of a float32
 */
function formatNumber(value) {
  return String(Number(value.toPrecision(7)));
}
