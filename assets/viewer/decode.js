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
  return scene;
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
      rows[at][name] = texts.has(name) ? payload.strings[values[at]] : values[at];
    }
  }
  return rows;
}
