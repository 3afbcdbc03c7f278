// @ts-check
/** The kind of a saved storage, and the colors of the kinds. */

/** @typedef {import("../types.js").Scene} Scene */

/**
 * @param {Scene} scene
 * @param {string} theme
 * @returns {Record<string, string>} by name of the kind
 */
export function kindColors({ saved_kinds }, theme) {
  return Object.fromEntries(
    saved_kinds.map(({ name, light, dark }) => [name, theme === "dark" ? dark : light]),
  );
}

/** @type {WeakMap<Scene, Map<number, string>>} by id of the storage */
const kinds = new WeakMap();

/**
 * @param {Scene} scene
 * @param {number} storageId
 * @returns {string} the title of the kind of a saved storage
 */
export function kindOfStorage(scene, storageId) {
  let known = kinds.get(scene);
  if (!known) {
    known = new Map();
    kinds.set(scene, known);
    const titles = kindTitles(scene);
    for (const { kind, members } of scene.ribbons) {
      for (const at of members) {
        known.set(scene.counted_storages[at].storage_id, titles.get(kind) ?? kind);
      }
    }
  }
  return known.get(storageId) ?? "other saved tensors";
}

/**
 * @param {string} kind its name or title
 * @returns {(each: import("../types.js").SceneSavedKind) => boolean}
 */
const isKind =
  (kind) =>
  ({ name, title }) =>
    name === kind || title === kind;

/**
 * @param {Scene} scene
 * @param {string} kind its name or title
 */
const findKind = ({ saved_kinds }, kind) => saved_kinds.find(isKind(kind));

/**
 * @param {Scene} scene
 * @param {string} kind its name or title
 * @param {string} theme
 * @returns {string | undefined} its color
 */
export function kindHue(scene, kind, theme) {
  const found = findKind(scene, kind);
  return found && (theme === "dark" ? found.dark : found.light);
}

/**
 * @param {Scene} scene
 * @param {string} kind its name or title
 * @returns {string} its color in style sheets, in either theme: `setKindColors` defines it
 */
export const kindFill = (scene, kind) => `var(--kind-${findKind(scene, kind)?.name}, var(--text3))`;

/**
 * @param {Scene} scene
 * @param {HTMLElement} root
 * @param {string} theme
 */
export function setKindColors(scene, root, theme) {
  for (const [name, color] of Object.entries(kindColors(scene, theme)))
    root.style.setProperty(`--kind-${name}`, color);
}

/**
 * Return kinds with their bytes, the largest first; of equal ones the first in the list of kinds.
 *
 * @param {Scene} scene
 * @param {Map<string, number>} sums by name or title of the kind
 */
export function largestKinds({ saved_kinds }, sums) {
  // An unknown kind, with -1, becomes the last one.
  const placeOf = (/** @type {string} */ kind) => saved_kinds.findIndex(isKind(kind)) >>> 0;
  return [...sums]
    .filter(([, nbytes]) => nbytes)
    .sort((a, b) => b[1] - a[1] || placeOf(a[0]) - placeOf(b[0]));
}

/**
 * @param {import("../types.js").Scene} scene
 * @returns {Map<string, string>} the titles of kinds of saved memory, by name
 */
export function kindTitles(scene) {
  return new Map(scene.saved_kinds.map(({ name, title }) => [name, title]));
}
