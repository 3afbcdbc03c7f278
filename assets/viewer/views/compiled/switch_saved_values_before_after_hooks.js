// @ts-check
/** The switch between saved values before and after hooks that a compiler has inlined. */

import { choice, pressOne } from "../../dom.js";

/**
 * @param {import("../../shared_view_state.js").Store} store
 * @returns {HTMLElement} pressed like all other switches of the same store
 */
export function formChoice(store) {
  const group = choice(["after hooks", "before hooks"], store.savedForm, (name) =>
    store.set("savedForm", /** @type {import("../../shared_view_state.js").SavedForm} */ (name)),
  );
  store.subscribe(["savedForm"], () => pressOne(group, store.savedForm));
  return group;
}
