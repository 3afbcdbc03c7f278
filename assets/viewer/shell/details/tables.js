// @ts-check
/** Tables of saved tensors and of parameters. */

import { button, h, section } from "../../dom.js";
import { formatBytes, formatCount } from "../../scene/format.js";

/** @typedef {import("../../types.js").Chip} Chip */

export const LONGEST = 12;

const GRADIENTS = {
  ok: "has a gradient",
  none: "None",
  unknown: "no backward yet",
  zero: "zero",
  nan: "NaN or infinite",
};

const STATES = {
  held: "held",
  released: "released",
  recomputed: "recomputed",
  broken: "written since",
};

/**
 * @param {import("../../store.js").Store} store
 * @param {Chip[]} chips
 * @returns {HTMLElement[]}
 */
export function savedParts(store, chips) {
  if (!chips.length) return [];
  /** @type {Map<number | string, number>} */
  const storages = new Map();
  for (const chip of chips) storages.set(chip.storage_id ?? `saved ${chip.saved_id}`, chip.nbytes);
  const total = [...storages.values()].reduce((sum, nbytes) => sum + nbytes, 0);
  const rows = chips.slice(0, LONGEST).map((chip) => {
    const seen = chip.state === "broken" ? ` → v${chip.seen_version}` : "";
    const version = chip.version === null ? "?" : `v${chip.version}${seen}`;
    return h(
      "tr",
      { class: `agv-${chip.state}` },
      h("td", { class: "agv-strong agv-wrap" }, slotOf(store, chip)),
      h("td", {}, h("span", { class: "agv-version", text: version }), ` ${STATES[chip.state]}`),
      h(
        "td",
        { class: "agv-right" },
        h("div", { text: formatBytes(chip.nbytes) }),
        h("div", { class: "agv-mono agv-muted", text: chip.shape, title: chip.dtype }),
      ),
    );
  });
  const aside = `${formatCount(chips.length)} · ${formatBytes(total)}`;
  return [
    section("Saved tensors", aside, table(["slot", "version", "bytes, shape"], rows), more(chips)),
  ];
}

/**
 * @param {import("../../types.js").Pennant[]} pennants
 * @returns {HTMLElement[]}
 */
export function parameterParts(pennants) {
  if (!pennants.length) return [];
  const rows = pennants
    .slice(0, LONGEST)
    .map((pennant) =>
      h(
        "tr",
        {},
        h("td", { class: "agv-leaf agv-wrap", text: pennant.name || pennant.label }),
        h("td", { class: "agv-mono", text: pennant.shape }),
        h("td", { text: gradientWords(pennant) }),
      ),
    );
  const head = ["name", "shape", "gradient"];
  return [section("Parameters", formatCount(pennants.length), table(head, rows), more(pennants))];
}

/**
 * @param {unknown[]} all
 * @returns {HTMLElement | false}
 */
export function more(all) {
  const rest = all.length - LONGEST;
  return rest > 0 && h("div", { class: "agv-muted", text: `and ${formatCount(rest)} more` });
}

/**
 * @param {string[]} head
 * @param {HTMLElement[]} rows
 * @returns {HTMLElement}
 */
function table(head, rows) {
  const cells = head.map((text) =>
    h("th", { text, class: text.startsWith("bytes") ? "agv-right" : "" }),
  );
  const top = h("thead", {}, h("tr", {}, ...cells));
  return h(
    "div",
    { class: "agv-scroll" },
    h("table", { class: "agv-table" }, top, h("tbody", {}, ...rows)),
  );
}

/**
 * @param {import("../../types.js").Pennant} pennant
 * @returns {string}
 */
function gradientWords({ grad, norm }) {
  return grad === "ok" && norm !== null ? `norm ${norm.toPrecision(3)}` : GRADIENTS[grad];
}

/**
 * A slot's name, which leads to its storage's life.
 *
 * @param {import("../../store.js").Store} store
 * @param {Chip} chip
 * @returns {HTMLElement | string}
 */
function slotOf(store, chip) {
  const index = store.atlas.storageOf.get(chip.storage_id ?? -1);
  if (index === undefined) return chip.slot;
  const go = () => store.reveal({ kind: "storage", index });
  return button(`Why is ${chip.slot} kept?`, "agv-link agv-strong", go, chip.slot || "tensor");
}
