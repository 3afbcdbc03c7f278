// @ts-check
/** The recording's notices, such as that its file is damaged. */

import { h } from "../dom.js";
import { capitalized, plural } from "../scene/format_numbers_and_names.js";

/**
 * Return the notices, several of them behind one line unless the file is damaged.
 *
 * @param {import("../shared_view_state.js").Store} store
 * @returns {HTMLElement | null}
 */
export function makeNotices(store) {
  const { notices, torn } = store.scene.summary;
  if (!notices.length) return null;
  const lines = notices.map((text) => h("div", "", `${capitalized(text)}.`));
  const details = h(
    "details",
    "",
    h("summary", "", `${plural(notices.length, "limit")} of this recording`),
    ...lines,
  );
  details.open = torn;
  const parts = notices.length > 1 ? [details] : lines;
  return h("div", { class: "agv-notices", attrs: { role: "status" } }, ...parts);
}
