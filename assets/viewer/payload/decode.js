// @ts-check
/** From the wire to the scene: unpacks columns into rows. */

const SCHEMA = 1;

const TABLES = /** @type {const} */ ([
  "groups",
  "nodes",
  "edges",
  "chips",
  "pennants",
  "findings",
  "regions",
  "diffs",
  "spans",
  "memory",
  "lines",
  "storages",
  "moments",
  "modules",
  "changes",
  "saved_diffs",
]);

/** @typedef {import("../types.js").Scene} Scene */

/** @type {WeakMap<Scene, any>} what each scene was read from */
const payloads = new WeakMap();

/**
 * Read a payload: an object, or its JSON deflated to bytes.
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
 * What another thread can place a scene from: the same bytes, or the tables that it needs.
 *
 * @param {Scene} scene
 * @returns {any}
 */
export function payloadFor(scene) {
  const payload = payloads.get(scene);
  if (ArrayBuffer.isView(payload)) return payload;
  const others = TABLES.filter((table) => table !== "groups" && table !== "nodes");
  return { ...payload, ...Object.fromEntries(others.map((table) => [table, {}])) };
}

/**
 * @param {ArrayBufferView} bytes zlib's format
 * @returns {Promise<any>}
 */
async function inflate(bytes) {
  const stream = new Blob([/** @type {BlobPart} */ (bytes)]).stream();
  return new Response(stream.pipeThrough(new DecompressionStream("deflate"))).json();
}

/**
 * @param {any} payload
 * @returns {import("../types.js").Scene}
 */
export function toScene(payload) {
  if (payload.schema !== SCHEMA) {
    throw new Error(`This scene has schema ${payload.schema}, this viewer reads ${SCHEMA}.`);
  }
  /** @type {any} */
  const scene = { summary: payload.summary };
  for (const table of TABLES) scene[table] = rowsOf(payload, table);
  for (const group of scene.groups) unpackLayout(group, payload.strings);
  return scene;
}

/**
 * A group's cells and links come as columns of their own; most groups are never opened.
 *
 * @param {any} group
 * @param {string[]} strings
 */
function unpackLayout(group, strings) {
  later(group, "cells", () =>
    group.cells_ref.map((/** @type {number} */ ref, /** @type {number} */ at) => ({
      kind: strings[group.cells_kind[at]],
      ref,
    })),
  );
  later(group, "links", () =>
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

/**
 * A field that is made when it is first read.
 *
 * @param {any} row
 * @param {string} name
 * @param {() => any} make
 */
export function later(row, name, make) {
  Object.defineProperty(row, name, {
    configurable: true,
    get: () => {
      const value = make();
      Object.defineProperty(row, name, { value });
      return value;
    },
  });
}

/**
 * A table's rows. They hold their number alone and read the columns when asked: 100,000 objects
 * with 25 fields each would take the better part of a second to make.
 *
 * @param {any} payload
 * @param {string} table
 * @returns {any[]}
 */
function rowsOf(payload, table) {
  const columns = Object.entries(payload[table]);
  const texts = new Set(payload.string_columns[table]);
  class Row {
    /** @param {number} at */
    constructor(at) {
      this.at = at;
    }
  }
  for (const [name, column] of columns) {
    const values = /** @type {any[]} */ (column);
    const { strings } = payload;
    /** @this {Row} */
    function text() {
      const value = values[this.at];
      return typeof value === "number" ? strings[value] : value;
    }
    /** @this {Row} */
    function plain() {
      return values[this.at];
    }
    Object.defineProperty(Row.prototype, name, { get: texts.has(name) ? text : plain });
  }
  const count = columns.length ? /** @type {any[]} */ (columns[0][1]).length : 0;
  return Array.from({ length: count }, (_, at) => new Row(at));
}

/**
 * A row of which some fields are other than they are.
 *
 * @template {object} Row
 * @param {Row} row
 * @param {Partial<Row>} fields
 * @returns {Row}
 */
export function rowWith(row, fields) {
  const own = Object.entries(fields).map(([name, value]) => [name, { value }]);
  return Object.create(row, Object.fromEntries(own));
}
