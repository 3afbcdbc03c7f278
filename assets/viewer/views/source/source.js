// @ts-check
/** The recorded source lines with the nodes, saved bytes and time of each. */

import { button, h, listen } from "../../dom.js";
import { makeMarks } from "./marks.js";
import { sumBy } from "../../scene/saved_bytes.js";
import { formatBytes, formatDuration, formatPlace, plural } from "../../scene/format.js";

/** @typedef {import("../../store.js").Store} Store */

const COLUMNS = ["saved", "held at peak", "recomputed", "time"];

/**
 * @typedef {object} LineCost
 * @property {number[]} nodes
 * @property {import("../../scene/saved_bytes.js").SavedBytes} bytes
 * @property {number} time of its forward ops and their backward nodes, nanoseconds
 */

/**
 * @typedef {object} CompilerNotes what torch.compile did with a line
 * @property {number} region index of the last compiled region that has it, -1 without one
 * @property {string[]} breaks reasons of graph breaks
 * @property {string[]} guards guards that failed
 */

/**
 * @param {Store} store
 * @returns {HTMLElement}
 */
export function makeSource(store) {
  const costs = lineCosts(store);
  const compiled = compilerNotes(store);
  const rank = (/** @type {string} */ file) => +!costs.has(file);
  const files = [...store.sceneIndex.source]
    .filter(([file]) => file)
    .sort(([a], [b]) => rank(a) - rank(b));
  const scroller = h("div", { class: "agv-main agv-files", attrs: { tabindex: 0 } });
  const { marks, legend } = makeMarks(
    store,
    (filename, lineno) => placeKey({ filename, lineno }),
    scroller,
  );
  const empty = h(
    "p",
    "agv-empty-text",
    "This recording has no source lines. record(model, stacks=True) records them.",
  );
  const parts = files.map(([file, lines]) =>
    fileSection(store, file, lines, costs.get(file) ?? new Map(), compiled, marks),
  );
  scroller.append(...(legend ? [legend] : []), ...(parts.length ? parts : [empty]));
  // The chosen line is brought into view, or else the one that is to blame or selected.
  const show = () => {
    const key = store.line && placeKey(store.line);
    /** @type {NodeListOf<HTMLElement>} */
    const rows = scroller.querySelectorAll("[data-line]");
    for (const row of rows) row.classList.toggle("agv-chosen-line", row.dataset["line"] === key);
    const line =
      scroller.querySelector(".agv-chosen-line") ??
      scroller.querySelector(".agv-culprit") ??
      scroller.querySelector(".agv-selected-line");
    if (store.view !== "source" || !line) return;
    const top = line.getBoundingClientRect().top - scroller.getBoundingClientRect().top;
    scroller.scrollTop += top - scroller.clientHeight / 3;
  };
  store.subscribe(["view", "line"], () => requestAnimationFrame(show));
  requestAnimationFrame(show);
  return scroller;
}

/**
 * @param {{filename: string, lineno: number}} place
 * @returns {string}
 */
const placeKey = ({ filename, lineno }) => `${lineno} ${filename}`;

/**
 * @param {Store} store
 * @returns {Map<string, Map<number, LineCost>>}
 */
function lineCosts({ scene }) {
  /** @type {Map<string, Map<number, LineCost>>} */
  const files = new Map();
  const costOf = (/** @type {string} */ file, /** @type {number} */ line) => {
    const lines = files.get(file) ?? new Map();
    files.set(file, lines);
    const none = { saved: 0, recomputed: 0, at_peak: 0 };
    const cost = lines.get(line) ?? { nodes: [], bytes: none, time: 0 };
    lines.set(line, cost);
    return cost;
  };
  for (const node of scene.nodes) {
    if (!node.lineno) continue;
    const cost = costOf(node.filename, node.lineno);
    cost.nodes.push(node.index);
    cost.time += node.forward_ns + node.duration_ns;
  }
  const places = new Map(scene.counted_storages.map((each) => [placeKey(each), each]));
  for (const [key, bytes] of sumBy(scene.counted_storages, placeKey)) {
    const place = places.get(/** @type {string} */ (key));
    if (place?.lineno) costOf(place.filename, place.lineno).bytes = bytes;
  }
  return files;
}

/**
 * @param {Store} store
 * @returns {Map<string, CompilerNotes>} by the key of a place
 */
function compilerNotes({ scene }) {
  /** @type {Map<string, CompilerNotes>} */
  const notes = new Map();
  const noteOf = (/** @type {{filename: string, lineno: number}} */ place) => {
    const key = placeKey(place);
    const note = notes.get(key) ?? { region: -1, breaks: [], guards: [] };
    notes.set(key, note);
    return note;
  };
  for (const { picture, item } of scene.compiled_marks) {
    const place = scene.compiled_items[item];
    if (place?.lineno) noteOf(place).region = scene.compiled_pictures[picture].region;
  }
  for (const step of scene.compiled_steps) {
    if (step.kind === "break") noteOf(step).breaks.push(step.title);
    if (step.kind === "recompile") noteOf(step).guards.push(step.title);
  }
  return notes;
}

/**
 * @param {Store} store
 * @param {string} file
 * @param {Map<number, string>} lines
 * @param {Map<number, LineCost>} costs
 * @param {Map<string, CompilerNotes>} compiled
 * @param {Map<string, HTMLElement[]>} marks
 * @returns {HTMLElement}
 */
function fileSection(store, file, lines, costs, compiled, marks) {
  const largest = Math.max(
    1,
    ...[...costs.values()].map((cost) => cost.bytes.saved + cost.bytes.recomputed),
  );
  const numbers = [...lines.keys()].sort((a, b) => a - b);
  const columns = [...COLUMNS, "nodes", ...(compiled.size ? ["compiler"] : [])];
  const head = h(
    "div",
    "agv-source-line agv-source-columns",
    h("span", "agv-source-number", "line"),
    marks.size > 0 && h("span", "agv-marks"),
    h("code", "", " "),
    h(
      "span",
      "agv-source-tag",
      h("span", "agv-source-bar"),
      ...columns.map((text) => h("span", "", text)),
    ),
  );
  const block = h("div", "agv-source agv-source-wide", head);
  numbers.forEach((number, at) => {
    if (at && number > numbers[at - 1] + 1) block.append(h("div", "agv-source-gap"));
    const line = costLine(store, number, lines.get(number) ?? "", costs.get(number), largest);
    if (isBlamed(store, file, number)) line.classList.add("agv-culprit");
    const key = placeKey({ filename: file, lineno: number });
    line.dataset["line"] = key;
    if (marks.size) line.children[0].after(h("span", "agv-marks", ...(marks.get(key) ?? [])));
    const note = compiled.get(key);
    if (compiled.size) line.lastElementChild?.append(compilerCell(store, note));
    block.append(line);
  });
  return h(
    "section",
    {},
    h(
      "div",
      "agv-view-head",
      h("h3", { class: "agv-mono", text: formatPlace(file, 0), title: file }),
      h("span", "agv-muted", file),
    ),
    h("div", "agv-scroll", block),
  );
}

/**
 * @param {Store} store
 * @param {string} file
 * @param {number} number
 * @returns {boolean} whether the first finding blames the line
 */
function isBlamed({ scene: { findings } }, file, number) {
  const [first] = findings;
  return first?.culprit_line === number && first.culprit_file === file;
}

/**
 * @param {Store} store
 * @param {number} number
 * @param {string} text
 * @param {LineCost | undefined} cost
 * @param {number} largest bytes of all lines of the file
 * @returns {HTMLElement}
 */
function costLine(store, number, text, cost, largest) {
  const { nodes } = store.scene;
  const failed = cost?.nodes.some((node) => nodes[node].error || nodes[node].state === "failed");
  const writes = cost?.nodes.some((node) => nodes[node].writes);
  const line = h(
    "div",
    `agv-source-line ${writes ? "agv-culprit" : failed ? "agv-victim" : ""}`,
    h("span", "agv-source-number", String(number)),
    h("code", "", text || " "),
  );
  if (!cost) {
    line.append(h("span", "agv-source-tag"));
    return line;
  }
  const { nodes: own } = cost;
  const mark = () => {
    const selected = own.some((node) => store.related.nodes.has(node));
    line.classList.toggle("agv-selected-line", selected);
  };
  store.subscribe(["selected"], mark);
  mark();
  listen(line, "click", (event) => {
    if (/** @type {Element} */ (event.target).closest("button") || !own.length) return;
    store.set("selected", { kind: "node", index: own[0] });
  });
  const bar = h("span", "agv-source-bar");
  bar.style.width = `${((cost.bytes.saved + cost.bytes.recomputed) / largest) * 60}px`;
  const show = () => store.reveal({ kind: "node", index: own[0] });
  line.append(
    h(
      "span",
      "agv-source-tag",
      bar,
      ...[cost.bytes.saved, cost.bytes.at_peak, cost.bytes.recomputed].map((nbytes, at) =>
        h("span", {
          class: at < 2 ? "agv-saved" : "agv-recompute",
          title: COLUMNS[at],
          text: nbytes ? formatBytes(nbytes) : "",
        }),
      ),
      h("span", { title: COLUMNS[3], text: cost.time ? formatDuration(cost.time) : "" }),
      own.length > 0
        ? button(`Show line ${number} in the graph`, "agv-link", show, plural(own.length, "node"))
        : h("span", {}),
    ),
  );
  return line;
}

/**
 * @param {Store} store
 * @param {CompilerNotes | undefined} note
 * @returns {HTMLElement}
 */
function compilerCell(store, note) {
  if (note?.breaks.length) {
    return h("span", { class: "agv-broken", text: "graph break", title: note.breaks.join("\n") });
  }
  if (note?.guards.length) {
    const text = note.guards.length > 1 ? `recompiled ×${note.guards.length}` : "recompiled";
    return h("span", { class: "agv-recompute", text, title: note.guards.join("\n") });
  }
  if (!note || note.region < 0) return h("span", {});
  const show = () => store.showCompiled(note.region);
  const { name } = store.scene.compiled_regions[note.region];
  return button(`Show ${name}`, "agv-link", show, "compiled");
}
