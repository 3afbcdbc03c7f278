// @ts-check
/**
 * The style sheets of the views and of the shell. build.mjs puts them into the script, which is sent compressed, and
 * a style sheet is not; the viewer adds them to its element.
 *
 * @type {string[]}
 */
export const viewStyles = [];
