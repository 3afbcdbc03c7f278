// @ts-check
/**
 * The style sheets of the views and of the shell. build.mjs puts them into the script, which is sent compressed, and
 * a style sheet is not; the viewer adds them to its element.
 *
 * @type {string[]}
 */
export const viewStyles = [];

/**
 * Frequent phrases of the style sheets, and the letters that build.mjs writes for them.
 *
 * @type {[letter: string, phrase: string][]}
 */
export const ABBREVIATIONS = [
  ["?", ".agv-"],
  ["$", "var(--"],
  ["&", "@container (max-width:"],
  ["|", "grid-template-columns:"],
  ["^", "background:"],
  ["Z", "overflow:hidden"],
  ["`", "font-size:"],
  ["Q", "display:"],
];

/** @returns {string} the style sheets */
export const viewStyleText = () =>
  ABBREVIATIONS.reduce((text, pair) => text.replaceAll(...pair), viewStyles.join(""));
