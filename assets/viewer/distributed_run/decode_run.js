// @ts-check
/** Decodes the payload of a run; `autogradviz/distributed_runs/scene/payload.py` describes the format. */

import { decodeBase64, inflate } from "../payload/decode.js";

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
    const bytes = decodeBase64(String(text));
    cells[name] =
      name === "state"
        ? bytes
        : name === "ops"
          ? new Int32Array(bytes.buffer)
          : new Float32Array(bytes.buffer);
  }
  return scene;
}
