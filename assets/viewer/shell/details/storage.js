// @ts-check
/** Details of a storage: its properties, what keeps it alive, its events. */

import { button, h, propertyList } from "../../dom.js";
import { cutText, formatBytes, placeOf } from "../../scene/format_numbers_and_names.js";
import { stackList } from "./shared_sections.js";
import { whyButton } from "./why_trail.js";
import { describeEvent } from "../../views/tensors/event_markers_and_texts.js";

/** @typedef {import("../../shared_view_state.js").Store} Store */

const MAX_EVENTS = 24;

/**
 * @param {Store} store
 * @param {number} index
 * @returns {(HTMLElement | false)[]}
 */
export function storageDetails(store, index) {
  const storage = store.scene.storages[index];
  const events = store.sceneIndex.storageEvents[index];
  const reasons = storage.slots.flatMap((slot) => {
    const text = store.sceneIndex.reasons.get(slot);
    return text ? [h("p", "agv-text", h("b", "", slot), ` ${text}`)] : [];
  });
  const keepers = storage.keepers.length
    ? storage.keepers.map((text) => h("p", "agv-text", text))
    : [h("p", "agv-text agv-muted", describeRelease(store.scene, storage, events))];
  const show = () => store.reveal({ kind: "node", index: storage.node });
  return [
    h("h4", "", storage.name),
    propertyList([
      ["shape", h("code", "", `${storage.dtype}[${storage.shape}]`)],
      ["bytes", formatBytes(storage.nbytes) + (storage.holds.length ? "" : ", not held")],
      ["module", storage.module && h("code", "", storage.module)],
      ["saved at", placeOf(storage)],
      ["saved for", storage.slots.slice(0, 4).join(", ")],
      ["storage", `s${storage.storage_id}`],
    ]),
    reasons.length > 0 && h("h4", "", "Why it is kept"),
    ...reasons,
    ...compiledReasons(store, index),
    h("h4", "", storage.keepers.length ? "Kept alive by" : "No longer kept alive"),
    ...keepers,
    ...stackList(store, storage.call, "Created at"),
    h("h4", "", "Events"),
    ...events
      .slice(0, MAX_EVENTS)
      .map((event) =>
        h("p", `agv-text ${event.ok ? "" : "agv-mutation"}`, describeEvent(event, store.scene)),
      ),
    ...(events.length > MAX_EVENTS
      ? [h("p", "agv-muted", cutText(MAX_EVENTS, events.length, "first"))]
      : []),
    h(
      "div",
      "agv-buttons",
      storage.node >= 0 && button("Show in the graph", "agv-link", show),
      whyButton(store, `storage ${index}`, storage.name),
    ),
  ];
}

/**
 * Return why a compiled region saves a storage.
 *
 * @param {Store} store
 * @param {number} index
 * @returns {HTMLElement[]}
 */
function compiledReasons(store, index) {
  const [slot] = store.scene.compiled_slots.filter(({ storage }) => storage === index);
  if (!slot) return [];
  const { name } = store.scene.compiled_regions[slot.region];
  const show = () => store.showCompiled(slot.region);
  return [
    h("h4", "", `Saved as ${slot.name}`),
    h("p", "agv-text", slot.reason),
    button("Open the compiled region", "agv-link", show, `Open ${name}`),
  ];
}

/**
 * @param {import("../../types.js").Scene} scene
 * @param {import("../../types.js").SceneStorage} storage
 * @param {import("../../types.js").SceneStorageEvent[]} events
 * @returns {string}
 */
function describeRelease(scene, { node, holds }, events) {
  const last = events.findLast((event) => event.kind === "released");
  if (last) return `Last ${describeEvent(last, scene)}.`;
  if (!holds.length) return "A checkpoint dropped it in the forward.";
  return scene.nodes[node]?.runs_ns.length === 0
    ? "Its node did not run."
    : "Its node released it after running.";
}
