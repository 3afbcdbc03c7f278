// @ts-check
/** Decodes the payload of a run; `autogradviz/distributed_runs/scene/payload.py` describes the format. */

import { inflate } from "../payload/decode.js";

const SCHEMA = 1;

/**
 * @param {ArrayBufferView} payload
 * @returns {Promise<import("./types.js").RunScene>}
 */
export async function decodeRun(payload) {
  const scene = await inflate(payload);
  if (scene.schema !== SCHEMA) {
    throw new Error(`the run has schema ${scene.schema}, this viewer reads ${SCHEMA}`);
  }
  const { cells } = scene;
  for (const [name, text] of Object.entries(cells)) {
    const letters = atob(String(text));
    const bytes = new Uint8Array(letters.length);
    for (let at = 0; at < letters.length; at++) bytes[at] = letters.charCodeAt(at);
    cells[name] =
      name === "state"
        ? bytes
        : name === "ops"
          ? new Int32Array(bytes.buffer)
          : new Float32Array(bytes.buffer);
  }
  return scene;
}
