// @ts-check
/** One storage's story: what happened to it, and why it is kept alive. */

import { button, facts, h } from "../../dom.js";
import { formatBytes, formatPlace } from "../../scene/format.js";
import { momentWords } from "../../views/tensors/event_markers.js";

/** @typedef {import("../../store.js").Store} Store */

/**
 * Everything about one storage: what happened to it and what keeps it.
 *
 * @param {Store} store
 * @param {number} index
 * @returns {HTMLElement[]}
 */
export function storyParts(store, index) {
  const storage = store.scene.storages[index];
  const moments = store.atlas.moments[index];
  const kept = storage.keepers.length
    ? storage.keepers.map((text) => h("p", { class: "agv-text", text }))
    : [h("p", { class: "agv-text agv-muted", text: letGoWords(moments) })];
  const show = () => store.reveal({ kind: "node", index: storage.node });
  return [
    h("h4", { text: storage.name }),
    facts([
      ["shape", h("code", { text: `${storage.dtype}[${storage.shape}]` })],
      ["bytes", formatBytes(storage.nbytes)],
      ["module", storage.module && h("code", { text: storage.module })],
      ["saved at", formatPlace(storage.filename, storage.lineno)],
      ["saved for", storage.slots.slice(0, 4).join(", ")],
      ["storage", `s${storage.storage_id}`],
    ]),
    h("h4", { text: storage.keepers.length ? "Kept alive by" : "Not kept any more" }),
    ...kept,
    h("h4", { text: "What happened" }),
    ...moments.slice(0, 24).map((moment) =>
      h("p", {
        class: `agv-text ${moment.ok && moment.kind !== "written" ? "" : "agv-mutation"}`,
        text: momentWords(moment),
      }),
    ),
    ...(storage.node < 0
      ? []
      : [button("Show in the graph", "agv-link", show, "Show in the graph")]),
  ];
}

/**
 * @param {import("../../types.js").SceneMoment[]} moments
 * @returns {string}
 */
function letGoWords(moments) {
  const last = moments.findLast((moment) => moment.kind === "released");
  return last ? `Last ${momentWords(last)}.` : "Its node let it go when it ran.";
}
