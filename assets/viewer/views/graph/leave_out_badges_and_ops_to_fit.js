// @ts-check
/** The graph of a view without room for all: badges are left out first, then forward ops. */

import { place } from "../../layout/coordinates.js";
import { rowWith } from "../../payload/lazy_rows.js";
import { visibleFor } from "../../scene/scene_index.js";
import { largerSavedText, savedText } from "../../scene/sum_and_describe_saved_bytes.js";
import { fitTo } from "./camera.js";
import { findBox, rowsNear } from "./boxes_of_items.js";
import { COMFORTABLE, READABLE, READABLE_VICTIM, SCROLLED } from "./initial_camera.js";
import { BADGE_DISTANCE, BADGE_GAP } from "./paint/badges.js";

/** @typedef {import("../../scene/scene_index.js").SceneIndex} SceneIndex */

/**
 * The parts that are left out, each with all before it. 1: saved tensors after the first of a node.
 * 2: parameters of nodes next to others. 3: saved tensors of these. 4: long names of parameters.
 * 5: parameters. 6: forward ops, except of writes. 7: saved tensors.
 *
 * @typedef {0 | 1 | 2 | 3 | 4 | 5 | 6 | 7} Narrowness
 */

/** Width of "+2", the number of badges that are left out. */
const COUNT_WIDTH = 24;
/** Widths of a letter of a name and of a note. */
const LETTER = 8.6;
const NOTE_LETTER = 6.9;
/** Width of the parts of a closed group that are not text: alone, repeated, recomputed. */
const [CLOSED_ROOM, PILL_ROOM] = [48, 40];
/** A picture that is a little too wide is drawn a little smaller. */
const TOLERANCE = 0.92;
/** The same before the last saved tensors are left out. */
const LAST_TOLERANCE = 0.7;
/** The smallest text in pixels, and in the picture. */
const [MIN_TEXT, SMALL_TEXT] = [9.5, 10.5];
/** Room for the bytes of closed groups in the smallest pictures, next to others and alone. */
const CLOSED_GROWTHS = [1.2, 1.35];
const MAX_PARAMETER = 130;
/** Boxes are widened at most by this factor. */
const MAX_GROWTH = 1.65;
/** Larger pictures show everything. */
const MAX_BOXES = 400;

/**
 * Return an index whose picture is as wide as the view, with readable text.
 *
 * @param {SceneIndex} sceneIndex
 * @param {Set<number>} open groups
 * @param {number} width of the view in pixels
 * @param {number} height
 * @param {number | undefined} victim the first victim
 * @returns {SceneIndex}
 */
export function fittingIndex(sceneIndex, open, width, height, victim) {
  const { scene } = sceneIndex;
  let cells = 0;
  for (const group of open) cells += scene.groups[group].cells.length;
  if (cells > MAX_BOXES) return sceneIndex;
  const least = victim === undefined ? READABLE : READABLE_VICTIM;
  const shown = victim === undefined ? null : visibleFor(sceneIndex, open, victim);
  const crowded = crowdedItems(sceneIndex, open);
  let narrowest = sceneIndex;
  for (const isWhole of [true, false]) {
    for (const narrowness of /** @type {Narrowness[]} */ ([0, 1, 2, 3, 4, 5, 6, 7])) {
      const plain = narrowIndex(sceneIndex, open, narrowness, 1, crowded);
      const { height: high } = place(plain.scene, open);
      const down = fitTo({ x: 0, y: 0, w: 1, h: high }, width, height).scale;
      if (isWhole && down < least) break;
      const scale = Math.min(isWhole ? down : 1, SCROLLED);
      // Small text is enlarged to a readable size; its box needs the same.
      const growth = Math.max(1, Math.min(MAX_GROWTH, MIN_TEXT / SMALL_TEXT / scale));
      narrowest = growth > 1 ? narrowIndex(sceneIndex, open, narrowness, growth, crowded) : plain;
      const placement = place(narrowest.scene, open);
      // Of a picture that is scrolled, the rows near the victim are shown first.
      const box = isWhole ? undefined : findBox(placement, shown);
      const wide = box
        ? rowsNear(narrowest.scene, placement, box, height / COMFORTABLE).w
        : placement.width;
      const across = fitTo({ x: 0, y: 0, w: wide, h: 1 }, width, height).scale;
      const enough = scale * (narrowness < 6 ? TOLERANCE : LAST_TOLERANCE);
      if (across >= Math.max(least, enough)) return narrowest;
    }
  }
  return narrowest;
}

/**
 * Return whether a picture is as wide as the view, with readable text.
 *
 * @param {SceneIndex} sceneIndex
 * @param {Set<number>} open groups
 * @param {number} width of the view in pixels
 * @returns {boolean}
 */
export function fitsAcross({ scene }, open, width) {
  return fitTo({ x: 0, y: 0, w: place(scene, open).width, h: 1 }, width, width).scale >= READABLE;
}

/**
 * Return the closed groups that are next to others in a row, and their siblings whose names differ
 * only in numbers.
 *
 * @param {SceneIndex} sceneIndex
 * @param {Set<number>} open
 * @returns {import("../../types.js").SceneGroup[]}
 */
export function crowdedGroups(sceneIndex, open) {
  const { groups } = sceneIndex.scene;
  const nameOf = (/** @type {import("../../types.js").SceneGroup} */ group) =>
    `${group.parent} ${group.label.replace(/\d+/g, "#")}`;
  const crowded = [...crowdedItems(sceneIndex, open)].map((each) => each.split(" "));
  const names = new Set(
    crowded.filter(([kind]) => kind === "group").map(([, at]) => nameOf(groups[Number(at)])),
  );
  return groups.filter((group) => open.has(group.parent) && names.has(nameOf(group)));
}

/**
 * Return the open groups that are all there is in the group around them, and the first blocks of
 * those that are runs.
 *
 * @param {import("../../types.js").Scene} scene
 * @param {Set<number>} open
 * @returns {number[]} the innermost first
 */
export function onlyGroups({ groups }, open) {
  const found = [];
  for (let at = 0; at >= 0;) {
    const { cells, repeat } = groups[at];
    const items = cells.filter(({ kind }) => kind === "node" || kind === "group");
    const [first] = items;
    const isOnly = first?.kind === "group" && (items.length === 1 || repeat > 1);
    at = isOnly && open.has(first.ref) ? first.ref : -1;
    if (at >= 0) found.unshift(at);
  }
  return found;
}

/**
 * Return a width that is enough for a name: "m" and "w" are wider than other letters.
 *
 * @param {string} name
 * @returns {number}
 */
function nameWidth(name) {
  const wide = name.match(/[mw]/gi)?.length ?? 0;
  return (name.length + 0.5 * wide) * LETTER;
}

/**
 * Return the nodes and the groups that are next to others in a row.
 *
 * @param {SceneIndex} sceneIndex
 * @param {Set<number>} open
 * @returns {Set<string>} of kind and index
 */
export function crowdedItems({ scene }, open) {
  const found = new Set();
  for (const index of open) {
    const { cells, rows } = scene.groups[index];
    for (const row of rows) {
      const items = row.map((at) => cells[at]).filter(({ kind }) => "nodegroup".includes(kind));
      if (items.length > 1) for (const { kind, ref } of items) found.add(`${kind} ${ref}`);
    }
  }
  return found;
}

/**
 * Return an index in which less is drawn, in boxes that are wider by a factor.
 *
 * Only what the open groups draw is changed: a scene may have a hundred thousand other nodes.
 *
 * @param {SceneIndex} sceneIndex
 * @param {Set<number>} open groups
 * @param {Narrowness} narrowness
 * @param {number} growth
 * @param {Set<string>} crowded nodes and groups next to others
 * @returns {SceneIndex}
 */
function narrowIndex(sceneIndex, open, narrowness, growth, crowded) {
  if (!narrowness && growth === 1) return sceneIndex;
  const isCrowded = (/** @type {number} */ node) => crowded.has(`node ${node}`);
  const savedTensors = [...sceneIndex.savedTensors];
  const parameters = [...sceneIndex.parameters];
  const nodes = [...sceneIndex.scene.nodes];
  const groups = [...sceneIndex.scene.groups];
  const widthOf = (/** @type {{width: number}[]} */ badges) => {
    const visible = badges.filter(({ width }) => width);
    const sum = visible.reduce((all, { width }) => all + width + BADGE_DISTANCE, 0);
    return visible.length ? BADGE_GAP + sum - BADGE_DISTANCE : 0;
  };
  const narrowNode = (/** @type {number} */ at) => {
    const badges = sceneIndex.savedTensors[at];
    const shown =
      badges.find(({ state }) => state === "broken") ??
      badges.reduce((a, b) => (b.width && b.nbytes > a.nbytes ? b : a), badges[0]);
    const resized = badges.map((badge) => {
      const few = narrowness < 3 || (narrowness < 7 && !isCrowded(at));
      const kept = !narrowness || (badge === shown && (few || badge.state === "broken"));
      return badge.width ? rowWith(badge, { width: kept ? badge.width * growth : 0 }) : badge;
    });
    savedTensors[at] = narrowness ? resized.sort((a, b) => b.width - a.width) : resized;
    const most = narrowness > 3 ? MAX_PARAMETER : Infinity;
    const none = narrowness > 4 || (narrowness > 1 && isCrowded(at));
    parameters[at] = none
      ? []
      : sceneIndex.parameters[at].map((badge) =>
          rowWith(badge, { width: Math.min(most, badge.width) * growth }),
        );
    const node = sceneIndex.scene.nodes[at];
    const hidden = resized.some(({ width }) => !width);
    const gap = resized.some(({ width }) => width) ? BADGE_DISTANCE : BADGE_GAP;
    const count = hidden ? COUNT_WIDTH * growth + gap : 0;
    const twoParts = narrowness < 6 || node.writes || !node.name_width;
    const least = narrowness > 5 ? Math.max(110, nameWidth(node.name) + 18) : Infinity;
    nodes[at] = rowWith(node, {
      left_width: widthOf(parameters[at]),
      right_width: node.compact ? node.right_width * growth : widthOf(resized) + count,
      op_width: node.compact ? node.op_width : twoParts ? node.op_width * growth : 0,
      name_width: Math.min(node.name_width, least) * growth,
    });
  };
  const narrowGroup = (/** @type {number} */ at) => {
    const group = sceneIndex.scene.groups[at];
    const pills = (+(group.repeat > 1) + +(group.recomputes > 0)) * PILL_ROOM;
    const saved = narrowness > 6 ? largerSavedText(group) : savedText(group);
    const text = nameWidth(group.label) + saved.length * NOTE_LETTER;
    const tight = Math.min(group.width, CLOSED_ROOM + pills + text);
    const isAlone = narrowness === 6 || !crowded.has(`group ${group.index}`);
    const grown = narrowness > 5 ? Math.max(growth, CLOSED_GROWTHS[+isAlone]) : growth;
    const width = (narrowness < 3 ? group.width : tight) * grown;
    const header = narrowness < 5 ? group.header_width * growth : 0;
    groups[at] = rowWith(group, { width, header_width: header });
  };
  const drawn = { node: new Set(), group: new Set(open) };
  for (const index of open) {
    for (const { kind, ref } of sceneIndex.scene.groups[index].cells) {
      if (kind === "node" || kind === "group") drawn[kind].add(ref);
    }
  }
  drawn.node.forEach(narrowNode);
  drawn.group.forEach(narrowGroup);
  const scene = rowWith(sceneIndex.scene, { nodes, groups });
  return rowWith(sceneIndex, { scene, savedTensors, parameters });
}
