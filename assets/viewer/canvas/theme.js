// @ts-check
/** The color palettes of the two themes, and which of them the host page has. */

/** @typedef {"light" | "dark"} Theme */

/**
 * @typedef {object} Palette
 * @property {string} text
 * @property {string} text2
 * @property {string} text3
 * @property {string} edge
 * @property {string} backward
 * @property {string} saved
 * @property {string} mutation
 * @property {string} recompute
 * @property {string} leaf
 * @property {string} path
 * @property {string} canvas background of the graph
 * @property {string} surface background of boxes and panels
 * @property {string} raised
 * @property {string} line
 * @property {string} line2
 * @property {number} badgeTint share of the hue in the fill of a badge
 * @property {number} nodeTint share of the hue in the fill of a node that ran
 */

/** @type {Record<Theme, Palette>} */
export const PALETTES = {
  light: {
    text: "#1f2328",
    text2: "#57606a",
    text3: "#656d76",
    edge: "#6e7781",
    backward: "#1f5fbf",
    saved: "#0b6e4f",
    mutation: "#b3261e",
    recompute: "#6f3fb5",
    leaf: "#7a5c00",
    path: "#a85000",
    canvas: "#fafbfc",
    surface: "#ffffff",
    raised: "#f4f5f7",
    line: "#e3e6ea",
    line2: "#c8cdd4",
    badgeTint: 0.09,
    nodeTint: 0.18,
  },
  dark: {
    text: "#e6e6e6",
    text2: "#aab2bc",
    text3: "#8d96a0",
    edge: "#7d8590",
    backward: "#82b1ff",
    saved: "#4cc9a0",
    mutation: "#ff8a80",
    recompute: "#c6a5ff",
    leaf: "#e3c15a",
    path: "#ffb454",
    canvas: "#0f1113",
    surface: "#16181b",
    raised: "#1e2125",
    line: "#2a2e34",
    line2: "#434a53",
    badgeTint: 0.13,
    nodeTint: 0.24,
  },
};

/** @type {Map<string, string>} */
const mixes = new Map();

/**
 * Return the opaque color of `front` over `back`; both are `#rrggbb`.
 *
 * @param {string} front
 * @param {string} back
 * @param {number} share of `front`, from 0 to 1
 * @returns {string}
 */
export function mix(front, back, share) {
  const key = `${front}${back}${share}`;
  let mixed = mixes.get(key);
  if (mixed === undefined) {
    mixed = "#";
    for (const at of [1, 3, 5]) {
      const a = parseInt(front.slice(at, at + 2), 16);
      const b = parseInt(back.slice(at, at + 2), 16);
      mixed += Math.round(a * share + b * (1 - share))
        .toString(16)
        .padStart(2, "0");
    }
    mixes.set(key, mixed);
  }
  return mixed;
}

/**
 * Return the theme of the host page: as JupyterLab or VS Code declare it, or else as other hosts do,
 * or else the system's preference.
 *
 * @returns {Theme}
 */
export function hostTheme() {
  const { body, documentElement: html } = document;
  if (body.dataset.jpThemeLight) return body.dataset.jpThemeLight === "true" ? "light" : "dark";
  const code = body.dataset.vscodeThemeKind ?? body.className;
  if (/vscode-(dark|high-contrast(?!-light))/.test(code)) return "dark";
  if (/vscode-(light|high-contrast-light)/.test(code)) return "light";
  const named = html.dataset.theme ?? html.getAttribute("theme");
  if (named === "dark" || named === "light") return named;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/**
 * Call a function whenever the host's theme may have changed.
 *
 * @param {() => void} changed
 * @returns {() => void} stops watching
 */
export function watchTheme(changed) {
  const observer = new MutationObserver(changed);
  const attributes = { attributes: true };
  observer.observe(document.body, attributes);
  observer.observe(document.documentElement, attributes);
  const system = matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", changed);
  return () => {
    observer.disconnect();
    system.removeEventListener("change", changed);
  };
}

/** @returns {boolean} whether the user prefers reduced motion */
export function prefersReducedMotion() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

/**
 * Return the color of a kind of span.
 *
 * @param {Palette} palette
 * @param {string} kind
 * @returns {string}
 */
export function hueOfSpan(palette, kind) {
  if (kind === "backward" || kind === "node") return palette.backward;
  if (kind === "recompute") return palette.recompute;
  if (kind === "buffer" || kind === "buffers") return palette.text2;
  return ["optimizer", "accumulate", "gradients"].includes(kind) ? palette.leaf : palette.text2;
}
