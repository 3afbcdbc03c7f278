// The marks on a lifeline of several storages.

import assert from "node:assert/strict";
import test from "node:test";
import { markedEvents } from "../../assets/viewer/views/tensors/lifelines.js";

/** Blocks that save in the forward, and are recomputed while the others are still held. */
function row(steps, blocks) {
  const scene = { steps: [], storages: [] };
  const events = [];
  const changes = [];
  for (let step = 0; step < steps; step++) {
    scene.steps.push({ start_ns: 100 * step, end_ns: 100 * (step + 1) });
    for (let block = 0; block < blocks; block++) {
      const storage = scene.storages.length;
      const [start, again, end] = [10, 50, 80].map(
        (time) => 100 * step + time + block,
      );
      scene.storages.push({ module: `h.${block}`, holds: [start, end] });
      const add = (kind, time_ns) =>
        events.push({ storage, kind, ok: 1, time_ns });
      add("saved", start);
      add("recomputed", again);
      add("released", end);
      changes.push([start, 8], [end, -8]);
    }
  }
  events.sort((a, b) => a.time_ns - b.time_ns);
  changes.sort((a, b) => a[0] - b[0]);
  return markedEvents(scene, scene.storages, events, changes);
}

for (const [steps, blocks] of [
  [1, 5],
  [3, 1],
  [3, 5],
]) {
  test(`each of ${steps} steps marks the recomputation of ${blocks} blocks`, () => {
    const marked = row(steps, blocks).filter(
      ({ kind }) => kind === "recomputed",
    );
    const counts = Array.from(
      { length: steps },
      (_, step) =>
        marked.filter(({ time_ns }) => Math.floor(time_ns / 100) === step)
          .length,
    );
    assert.deepEqual(counts, Array(steps).fill(blocks));
  });
}
