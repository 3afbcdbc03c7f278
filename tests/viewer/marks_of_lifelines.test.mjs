// The marks on a lifeline of several storages.

import assert from "node:assert/strict";
import test from "node:test";
import { joinUses } from "../../assets/viewer/views/tensors/event_markers_and_texts.js";
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

const event = (kind, time_ns, storage = 0) => ({
  ...{ kind, time_ns, storage, ok: 1, version: 0, op: "" },
});

for (const width of [20, 200, 2000]) {
  test(`a tensor that backward used is marked as used at a width of ${width}`, () => {
    const all = [
      event("saved", 0),
      event("unpacked", 90),
      event("released", 95),
    ];
    const kinds = joinUses(all, all, (time) => (time * width) / 100).map(
      ({ kind }) => kind,
    );
    const last = width > 1000 ? ["unpacked", "used"] : ["used"];
    assert.deepEqual(kinds, ["saved", ...last]);
  });
}

test("a release without a use stays one", () => {
  const all = [event("saved", 0), event("released", 95)];
  assert.deepEqual(
    joinUses(all, all, (time) => time),
    all,
  );
});

test("a use that has no mark is part of the release", () => {
  const marked = [event("saved", 0), event("released", 95)];
  const all = [marked[0], event("unpacked", 40), marked[1]];
  const kinds = joinUses(marked, all, (time) => time).map(({ kind }) => kind);
  assert.deepEqual(kinds, ["saved", "used"]);
});

test("of releases that would overlap, the last is marked", () => {
  const all = [10, 14, 18, 60].map((time) => event("released", time));
  const times = joinUses(all, all, (time) => time).map((each) => each.time_ns);
  assert.deepEqual(times, [18, 60]);
});
