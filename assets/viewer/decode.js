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
]);

/**
 * Read a payload: an object, or its JSON deflated to bytes.
 *
 * @param {any} payload
 * @returns {Promise<import("./types.js").Scene>}
 */
export async function decodePayload(payload) {
  return toScene(ArrayBuffer.isView(payload) ? await inflate(payload) : payload);
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
 * @returns {import("./types.js").Scene}
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
 * A group's cells and links come as columns of their own.
 *
 * @param {any} group
 * @param {string[]} strings
 */
function unpackLayout(group, strings) {
  group.cells = group.cells_ref.map((/** @type {number} */ ref, /** @type {number} */ at) => ({
    kind: strings[group.cells_kind[at]],
    ref,
  }));
  group.links = group.links_path.map((/** @type {number[]} */ path, /** @type {number} */ at) => ({
    path,
    edges: group.links_edges[at],
    source_port: group.links_source_port[at],
    target_port: group.links_target_port[at],
    reversed: !!group.links_reversed[at],
    views: group.links_views[at],
  }));
}

/**
 * @param {any} payload
 * @param {string} table
 * @returns {any[]}
 */
function rowsOf(payload, table) {
  const columns = Object.entries(payload[table]);
  const texts = new Set(payload.string_columns[table]);
  const count = columns.length ? /** @type {any[]} */ (columns[0][1]).length : 0;
  /** @type {any[]} */
  const rows = Array.from({ length: count }, () => ({}));
  for (const [name, column] of columns) {
    const values = /** @type {any[]} */ (column);
    for (let at = 0; at < count; at++) {
      const value = values[at];
      rows[at][name] =
        texts.has(name) && typeof value === "number" ? payload.strings[value] : value;
    }
  }
  return rows;
}
