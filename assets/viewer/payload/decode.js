// @ts-check
/** Decodes a payload into a scene; `autogradviz/scene/payload.py` describes the format. */

import { defineLazy, makeRows } from "./lazy_rows.js";

/** @typedef {import("../types.js").Scene} Scene */

const SCHEMA = 1;

/** Tables that the layout worker needs. */
const LAYOUT_TABLES = ["groups", "nodes"];

/** @type {WeakMap<Scene, any>} the payload of each scene */
const payloads = new WeakMap();

/** @type {WeakMap<Scene, () => Promise<unknown>>} decodes the tables that a scene still lacks */
const waiting = new WeakMap();

/**
 * @param {Scene} scene
 * @returns {(() => Promise<unknown>) | undefined} decodes the tables that the scene still lacks:
 *   those of the memory view, if they are large
 */
export const laterTables = (scene) => waiting.get(scene);

/**
 * @param {string} text in base64
 * @returns {Uint8Array}
 */
export function decodeBase64(text) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at++) bytes[at] = letters.charCodeAt(at);
  return bytes;
}

/**
 * Decode a payload: an object, or its JSON compressed with zlib.
 *
 * @param {any} payload
 * @returns {Promise<Scene>}
 */
export async function decodePayload(payload) {
  const scene = toScene(ArrayBuffer.isView(payload) ? await inflate(payload) : payload);
  payloads.set(scene, payload);
  return scene;
}

/**
 * Return the message for the layout worker: the compressed payload, or only the tables that it needs.
 *
 * @param {Scene} scene
 * @returns {any}
 */
export function payloadForLayout(scene) {
  const payload = payloads.get(scene);
  if (ArrayBuffer.isView(payload)) return payload;
  const others = tableNames(payload).filter((name) => !LAYOUT_TABLES.includes(name));
  return { ...payload, ...Object.fromEntries(others.map((name) => [name, {}])) };
}

/**
 * @param {ArrayBufferView} bytes in zlib format
 * @returns {Promise<any>}
 */
export async function inflate(bytes) {
  if (!globalThis.DecompressionStream) {
    throw new Error("this browser reads no compressed reports; write one with compress=False");
  }
  const stream = new Blob([/** @type {BlobPart} */ (bytes)]).stream();
  const plain = new Response(stream.pipeThrough(new DecompressionStream("deflate")));
  return JSON.parse(await plain.text()); // twice as fast as json()
}

/**
 * @param {any} payload
 * @returns {string[]} names of the tables, in the order of the schema
 */
function tableNames(payload) {
  return Object.keys(payload.string_columns);
}

/**
 * @param {any} payload
 * @returns {Scene}
 */
export function toScene(payload) {
  if (payload.schema !== SCHEMA) {
    throw new Error(`This scene has schema ${payload.schema}, this viewer reads ${SCHEMA}.`);
  }
  /** @type {any} */
  const scene = { summary: payload.summary };
  if (payload.later) {
    waiting.set(scene, async () => {
      Object.assign(payload, await inflate(decodeBase64(payload.later)));
      waiting.delete(scene);
    });
  }
  for (const name of tableNames(payload)) {
    defineLazy(scene, name, () => {
      const rows = makeRows(payload[name], payload.string_columns[name], payload.strings);
      if (name === "groups") for (const group of rows) defineLayout(group, payload.strings);
      return rows;
    });
  }
  return scene;
}

/**
 * Define a group's cells and links, which are columns of their own. Most groups are never opened.
 *
 * @param {any} group
 * @param {string[]} strings
 */
function defineLayout(group, strings) {
  defineLazy(group, "cells", () =>
    group.cells_ref.map((/** @type {number} */ ref, /** @type {number} */ at) => ({
      kind: strings[group.cells_kind[at]],
      ref,
    })),
  );
  defineLazy(group, "links", () =>
    group.links_path.map((/** @type {number[]} */ path, /** @type {number} */ at) => ({
      path,
      edges: group.links_edges[at],
      source_port: group.links_source_port[at],
      target_port: group.links_target_port[at],
      reversed: !!group.links_reversed[at],
      views: group.links_views[at],
    })),
  );
}
