// @ts-check
/** The details panel: the selected node, group or storage, or else the recording. */

import { recomputedByNode } from "../../scene/range_profile.js";
import { stepOfNode } from "../../scene/step_of_time_or_node.js";
import { isHeldAtPeak } from "../../scene/storage_holds.js";
import { workAt } from "../../scene/progress_at_replayed_time.js";
import { nodesWithin } from "../../scene/scene_index.js";
import { sameItem } from "../../shared_view_state.js";
import { copyButton } from "../../copy_button.js";
import { button, h, propertyList, section } from "../../dom.js";
import { findingSections, nodeLink, stackList, titleSection } from "./shared_sections.js";
import { excerpt } from "../../views/source/excerpt.js";
import { formatBytes, formatDuration, placeOf } from "../../scene/format_numbers_and_names.js";
import { icon } from "../../canvas/draw_icon.js";
import { findGradientPath } from "../../scene/gradient_path.js";
import { contentsText, savedText } from "../../scene/sum_and_describe_saved_bytes.js";
import { storageDetails } from "./storage.js";
import { makeTrail, whyButton } from "./why_trail.js";
import { recordingDetails } from "./recording.js";
import {
  MAX_ROWS,
  moreNote,
  parameterSection,
  savedTensorSection,
} from "./saved_and_parameter_tables.js";

/** @typedef {import("../../shared_view_state.js").Store} Store */

/** Between two nodes of a replay: more would not be read. */
const FOLLOW_MS = 120;

/**
 * Return the panel; it follows the selection.
 *
 * @param {Store} store
 * @returns {HTMLElement}
 */
export function makeDetails(store) {
  const panel = h("aside", {
    class: "agv-details",
    attrs: { tabindex: 0, "aria-label": "Details" },
  });
  const body = h("div");
  panel.append(makeTrail(store), body);
  /** @type {import("../../shared_view_state.js").Item | null} */
  let shown = null;
  const fill = (selected = store.selected) => {
    shown = selected;
    const parts =
      selected === null
        ? recordingDetails(store)
        : selected.kind === "node"
          ? nodeDetails(store, selected.index)
          : selected.kind === "storage"
            ? [h("section", "agv-section", ...storageDetails(store, selected.index))]
            : groupDetails(store, selected.index);
    body.replaceChildren(...parts.filter((part) => part !== false));
    body.classList.toggle("agv-details-recording", !selected);
    panel.scrollTop = 0;
  };
  /** Show the node at work while the step is replayed; the station of a story keeps its node. */
  const follow = () => {
    const { time, selected } = store;
    const isStation = store.trail?.isStory && selected;
    const work = time === null || isStation ? -1 : workAt(store.sceneIndex, time);
    const item = work < 0 ? selected : { kind: /** @type {const} */ ("node"), index: work };
    if (!sameItem(item, shown) && !panel.matches(":focus-within")) fill(item);
  };
  let later = 0;
  const followSoon = () => {
    later = 0;
    follow();
  };
  store.subscribe(["selected", "step"], () => fill());
  store.subscribe(["time", "station"], () => {
    later ||= window.setTimeout(followSoon, store.time === null ? 0 : FOLLOW_MS);
  });
  store.subscribe(["open"], () => {
    const toggle = panel.querySelector(".agv-toggle-group");
    if (toggle && store.selected) nameToggle(toggle, store.open.has(store.selected.index));
  });
  fill();
  return panel;
}

/**
 * @param {Store} store
 * @returns {HTMLElement}
 */
function gradientPathButton(store) {
  const show = () =>
    store.selected && store.set("gradientPath", findGradientPath(store.sceneIndex, store.selected));
  return button(
    "Highlight the path from the loss (p)",
    "agv-copy",
    show,
    icon("path"),
    "from loss",
  );
}

/**
 * @param {Store} store
 * @param {number} index
 * @returns {HTMLElement[]}
 */
function nodeDetails(store, index) {
  const { sceneIndex } = store;
  const node = store.scene.nodes[index];
  const place = placeOf(node);
  const failed = !!node.error || node.state === "failed";
  const number = `#${node.node_id}`;
  const copies = [
    whyButton(store, `node ${index}`, node.name, "agv-copy"),
    copyButton("name", node.name),
  ];
  if (node.module) copies.push(copyButton("path", node.module));
  if (node.lineno) copies.push(copyButton("line", `${node.filename}:${node.lineno}`));
  copies.push(gradientPathButton(store));
  const compiled = store.compiledRegionOf(index);
  if (compiled >= 0) {
    const label = "Open the compiled region";
    copies.push(button(label, "agv-copy", () => store.showCompiled(compiled), label));
  }
  const parts = [titleSection(node.name, number, node.module, place, failed, copies)];
  parts.push(...findingSections(store, sceneIndex.findings[index]));
  const again = recomputedByNode(store.scene, node);
  const ran = { not_run: "not reached", ran: `${node.runs}×`, failed: "failed" }[node.state];
  parts.push(
    section(
      "Node",
      "",
      propertyList([
        ["forward op", node.op && h("code", "", node.op)],
        ["output", node.shape && h("code", "", node.shape)],
        ["backward", ran],
        ["duration", node.duration_ns ? formatDuration(node.duration_ns) : ""],
        ["of it recompute", again ? formatDuration(again) : ""],
        ["recomputed", node.recomputes ? `${node.recomputes}×` : ""],
        ["wrote", node.wrote && `in place, ${node.wrote}`],
        ["cloned", node.cloned && `${node.cloned}, before a write`],
        ["not finite", node.not_finite],
      ]),
    ),
  );
  const hasExcerpt = sceneIndex.findings[index].length > 0; // of the finding, with this line
  if (!hasExcerpt && node.lineno && sceneIndex.source.get(node.filename)?.has(node.lineno)) {
    const mark = {
      line: node.lineno,
      kind: /** @type {const} */ ("selected-line"),
      tag: "",
      text: "",
    };
    parts.push(section("Source", place, excerpt(sceneIndex, node.filename, [mark])));
  }
  const [, ...calls] = stackList(store, node.call, "");
  if (calls.length > 1)
    parts.push(section("Calls", `${calls.length} lines`, h("div", {}, ...calls)));
  for (const [title, texts] of /** @type {const} */ ([
    ["Hooks", node.hooks],
    ["Notes", node.notes],
  ])) {
    const lines = texts.map((text) => h("p", "agv-text", text));
    if (lines.length) parts.push(section(title, String(lines.length), h("div", {}, ...lines)));
  }
  parts.push(
    ...savedTensorSection(
      store,
      sceneIndex.savedTensors[index],
      node.saved_nbytes ? `${formatBytes(node.saved_nbytes)} saved` : "",
    ),
    ...parameterSection(store, sceneIndex.parameters[index]),
  );
  parts.push(...neighborSections(store, index));
  return parts;
}

/**
 * @param {Element} toggle the button that opens and closes the selected group
 * @param {boolean} open
 * @returns {Element}
 */
function nameToggle(toggle, open) {
  for (const name of ["aria-label", "title"]) toggle.setAttribute(name, open ? "Close" : "Open");
  toggle.textContent = open ? "Close" : "Open";
  return toggle;
}

/**
 * @param {Store} store
 * @param {number} index
 * @returns {HTMLElement[]}
 */
function groupDetails(store, index) {
  const { sceneIndex, scene } = store;
  const group = scene.groups[index];
  const nodes = nodesWithin(sceneIndex, index);
  const saved = nodes.flatMap((node) => sceneIndex.savedTensors[node]);
  const [step, ...others] = new Set(nodes.map((at) => stepOfNode(scene, scene.nodes[at])));
  // What is in one step holds nothing at the peak of another one.
  const isHeld = isHeldAtPeak(scene, step);
  const ids = new Set(saved.map((each) => each.storage_id));
  const held =
    others.length || !scene.steps[1]
      ? group.peak_nbytes
      : [...scene.counted_storages]
          .filter((each) => ids.has(each.storage_id) && isHeld(each))
          .reduce((sum, { nbytes }) => sum + nbytes, 0);
  const parts = [
    titleSection(group.label, contentsText(group), group.type_name, "", !!group.error, [
      ...(group.path ? [copyButton("path", group.path)] : []),
      gradientPathButton(store),
    ]),
    section(
      "Group",
      "",
      propertyList([
        ["path", group.path && h("code", "", group.path)],
        ["saved", formatBytes(group.nbytes)],
        ["recomputed", group.recomputed_nbytes ? formatBytes(group.recomputed_nbytes) : ""],
        ["held at peak", group.kind === "step" ? "" : formatBytes(held)],
        ["repeats", group.repeat > 1 ? `${group.repeat} identical blocks` : ""],
        ["checkpoint", group.checkpointed ? `recomputed ${group.recomputes}×` : ""],
        ["backward", { not_run: "not reached", ran: "ran", failed: "failed" }[group.state]],
      ]),
      index > 0 &&
        nameToggle(
          button("Open", "agv-button agv-toggle-group", () => store.toggle(index)),
          store.open.has(index),
        ),
    ),
  ];
  parts.push(...findingSections(store, [...new Set(nodes.flatMap((n) => sceneIndex.findings[n]))]));
  parts.push(
    ...savedTensorSection(store, largestFirst(saved, MAX_ROWS), savedText(group)),
    ...parameterSection(
      store,
      nodes.flatMap((n) => sceneIndex.parameters[n]),
    ),
  );
  return parts;
}

/**
 * @param {Store} store
 * @param {number} index
 * @returns {HTMLElement[]}
 */
function neighborSections(store, index) {
  const { sceneIndex } = store;
  /** @type {[string, number[]][]} */
  const sides = [
    ["Gradient from", sceneIndex.users[index]],
    ["Gradient to", sceneIndex.inputs[index]],
  ];
  return sides
    .filter(([, nodes]) => nodes.length)
    .map(([title, nodes]) => {
      const rows = nodes
        .slice(0, MAX_ROWS)
        .map((node) => nodeLink(store, node, store.scene.nodes[node].module));
      return section(title, "", h("div", {}, ...rows), moreNote(nodes));
    });
}

/**
 * Return the tensors with the largest `count` of them first and sorted.
 *
 * @param {import("../../types.js").SavedTensorBadge[]} badges
 * @param {number} count
 * @returns {import("../../types.js").SavedTensorBadge[]}
 */
function largestFirst(badges, count) {
  const sizes = badges.map((badge) => badge.nbytes);
  const order = Float64Array.from(sizes).sort();
  const least = order[Math.max(0, order.length - count)] ?? 0;
  const large = badges.filter((_, at) => sizes[at] >= least);
  large.sort((a, b) => b.nbytes - a.nbytes);
  return [...large, ...badges.filter((_, at) => sizes[at] < least)];
}
