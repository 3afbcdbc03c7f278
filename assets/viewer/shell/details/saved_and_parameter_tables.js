// @ts-check
/** Tables of the saved tensors and parameters of a node or group. */

import { button, h, section } from "../../dom.js";
import { whyButton } from "./why_trail.js";
import {
  formatBytes,
  formatCount,
  formatNorm,
  formatShape,
  savedTensorLabel,
  dotted,
} from "../../scene/format_numbers_and_names.js";

/** @typedef {import("../../types.js").SavedTensorBadge} SavedTensorBadge */

export const MAX_ROWS = 12;

const GRADIENTS = {
  ok: "got a gradient",
  none: "none",
  unknown: "no backward yet",
  zero: "zero",
  nan: "NaN or infinite",
};

const STATES = {
  held: "held",
  released: "released",
  freed: "freed, not recomputed",
  recomputed: "freed, recomputed",
  broken: "written since",
  stale: "written since",
};

/**
 * @param {SavedTensorBadge} badge
 * @returns {string}
 */
function stateText({ state, packed_by }) {
  return state === "broken" && packed_by === "checkpoint" ? "differs" : STATES[state];
}

/**
 * @param {import("../../shared_view_state.js").Store} store
 * @param {SavedTensorBadge[]} badges
 * @param {string} sum the bytes that they keep alive
 * @returns {HTMLElement[]}
 */
export function savedTensorSection(store, badges, sum) {
  if (!badges.length) return [];
  const rows = badges.slice(0, MAX_ROWS).map((badge) => {
    const version = savedTensorLabel(badge).version || "?";
    return h(
      "tr",
      `agv-${badge.state}`,
      h("td", "agv-strong agv-wrap", slotLink(store, badge)),
      h("td", {}, h("span", "agv-version", version), ` ${stateText(badge)}`),
      h(
        "td",
        "agv-right",
        h("div", "", formatBytes(badge.nbytes)),
        h("div", { class: "agv-mono agv-muted", text: formatShape(badge), title: badge.dtype }),
      ),
    );
  });
  const aside = dotted([formatCount(badges.length), sum]);
  return [
    section(
      "Saved tensors",
      aside,
      table(["slot", "version", "bytes, shape"], rows),
      moreNote(badges),
    ),
  ];
}

/**
 * @param {import("../../shared_view_state.js").Store} store
 * @param {import("../../types.js").ParameterBadge[]} badges
 * @returns {HTMLElement[]}
 */
export function parameterSection(store, badges) {
  if (!badges.length) return [];
  const rows = badges
    .slice(0, MAX_ROWS)
    .map((badge) =>
      h(
        "tr",
        {},
        h("td", "agv-leaf agv-wrap", badge.name || badge.label),
        h("td", "agv-mono", badge.shape),
        h("td", "", formatGradient(badge)),
        h("td", "", whyOf(store, badge.name)),
      ),
    );
  const head = ["name", "shape", "gradient", "why"];
  return [section("Parameters", formatCount(badges.length), table(head, rows), moreNote(badges))];
}

/**
 * @param {import("../../shared_view_state.js").Store} store
 * @param {string} target
 * @returns {HTMLElement | string}
 */
function whyOf(store, target) {
  return target && whyButton(store, `parameter ${target}`, target);
}

/**
 * @param {unknown[]} all
 * @returns {HTMLElement | false} the number of rows that are left out
 */
export function moreNote(all) {
  const rest = all.length - MAX_ROWS;
  return rest > 0 && h("div", "agv-muted", `and ${formatCount(rest)} more`);
}

/**
 * @param {string[]} head
 * @param {HTMLElement[]} rows
 * @returns {HTMLElement}
 */
function table(head, rows) {
  const cells = head.map((text) => h("th", text.startsWith("bytes") ? "agv-right" : "", text));
  const top = h("thead", {}, h("tr", {}, ...cells));
  return h("div", "agv-scroll", h("table", "agv-table", top, h("tbody", {}, ...rows)));
}

/**
 * @param {import("../../types.js").ParameterBadge} badge
 * @returns {string}
 */
function formatGradient({ grad, norm }) {
  return grad === "ok" && norm !== null ? `norm ${formatNorm(norm)}` : GRADIENTS[grad];
}

/**
 * Return a slot's name as a button that reveals its storage.
 *
 * @param {import("../../shared_view_state.js").Store} store
 * @param {SavedTensorBadge} badge
 * @returns {HTMLElement | string}
 */
function slotLink(store, badge) {
  const index = store.sceneIndex.storageOf.get(badge.storage_id ?? -1);
  if (index === undefined) return badge.slot;
  const show = () => store.reveal({ kind: "storage", index });
  return button(`Why is ${badge.slot} kept?`, "agv-link agv-strong", show, badge.slot || "tensor");
}
