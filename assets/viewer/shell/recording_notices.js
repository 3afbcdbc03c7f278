// @ts-check
/** The recording's notices, such as that its file is damaged. */

import { h } from "../dom.js";

/**
 * @param {import("../store.js").Store} store
 * @returns {HTMLElement | null}
 */
export function makeNotices(store) {
  const { notices } = store.scene.summary;
  if (!notices.length) return null;
  return h(
    "div",
    { class: "agv-notices", attrs: { role: "status" } },
    ...notices.map((text) => h("div", "", `${text.charAt(0).toUpperCase()}${text.slice(1)}.`)),
  );
}
