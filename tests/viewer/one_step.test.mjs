// What one step shows: its own sums, notes, regions and answers, not those of the recording.

import assert from "node:assert/strict";
import test from "node:test";
import { largestFold } from "../../assets/viewer/scene/bytes_of_ribbons_and_folds.js";
import { answerQuestion } from "../../assets/viewer/scene/answer_questions.js";
import {
  savedSums,
  summaryOf,
} from "../../assets/viewer/scene/sum_and_describe_saved_bytes.js";
import { timelineTracks } from "../../assets/viewer/views/timeline/tracks_and_bars.js";

const STEPS = [0, 1, 2].map((number) => ({
  number: number + 7,
  start_ns: 100 * number,
  end_ns: 100 * (number + 1),
}));

/** In step n: 10 bytes that are kept, 100 that are recomputed, and n + 1 draws and gradients. */
function scene() {
  const counted_storages = STEPS.flatMap(({ start_ns }, at) => [
    { nbytes: 10, recomputed: 0, holds: [start_ns + 10, at ? 390 : 395] },
    {
      nbytes: 100 * (at + 1),
      recomputed: 1,
      holds: [start_ns + 50, start_ns + 60],
    },
  ]);
  const regions = [0, 1, 1, 2].map((step, index) => ({ index, step }));
  const span = (kind, start_ns, fields = {}) => ({
    kind,
    label: kind === "node" ? "torch::autograd::AccumulateGrad" : kind,
    start_ns,
    end_ns: start_ns + 1,
    depth: 0,
    ref: -1,
    filename: "",
    lineno: 0,
    ...fields,
  });
  const spans = STEPS.flatMap(({ start_ns }, at) =>
    Array.from({ length: at + 1 }, (_, n) => [
      span("random", start_ns + 5 + n),
      span("node", start_ns + 55 + n),
      span("backward", start_ns + 50 + n),
    ]).flat(),
  );
  for (const { index, step } of regions)
    spans.push(
      span("recompute", STEPS[step].start_ns + 50 + index, { ref: index }),
    );
  return {
    steps: STEPS,
    counted_storages,
    regions,
    spans,
    nodes: [],
    memory_without_checkpoints: STEPS.map(({ start_ns }, at) => ({
      time_ns: start_ns + 50,
      nbytes: 500 + at,
    })),
    summary: {
      storages: 6,
      peak_nbytes: 330,
      saved_nbytes: 30,
      recomputed_nbytes: 600,
      released_nbytes: 630,
      held_nbytes: 0,
      offloaded_nbytes: 0,
      older_nbytes: 0,
      older_steps: 0,
      without_checkpoints_nbytes: 502,
    },
  };
}

test("the sums of the steps are those of the recording", () => {
  const made = scene();
  assert.equal(summaryOf(made, -1), made.summary);
  const each = STEPS.map((_, step) => summaryOf(made, step));
  const sum = (field) => each.reduce((total, one) => total + one[field], 0);
  for (const field of ["storages", "saved_nbytes", "recomputed_nbytes"])
    assert.equal(sum(field), made.summary[field]);
  for (const one of each)
    assert.equal(
      one.saved_nbytes + one.recomputed_nbytes,
      one.released_nbytes + one.held_nbytes,
    );
  // At its peak, a step also holds what the steps before it keep.
  assert.deepEqual(
    each.map(({ peak_nbytes }) => peak_nbytes),
    [110, 220, 330],
  );
  assert.deepEqual(
    each.map(({ without_checkpoints_nbytes: without }) => without),
    [500, 501, 502],
  );
  assert.ok(savedSums(each[1]).includes("200 B recomputed"));
});

test("the notes of the timeline count what ran in the step", () => {
  const made = scene();
  const notesOf = (step) =>
    Object.fromEntries(
      timelineTracks({ scene: made }, step).map(({ name, note }) => [
        name,
        note,
      ]),
    );
  const all = notesOf(-1);
  assert.deepEqual(
    [all.gradients, all.marks, all.backward, all.recompute],
    ["6 added", "6 random draws", "6 calls", "4 of 4"],
  );
  const second = notesOf(1);
  assert.deepEqual(
    [second.gradients, second.marks, second.backward, second.recompute],
    ["2 added", "2 random draws", "2 calls", "2 of 2"],
  );
  assert.equal(notesOf(0).backward, "");
});

test("a question that names a step is answered for it", () => {
  const fold = (step) => ({
    index: step,
    step,
    peak_nbytes: 10 * (3 - step),
    drawn: true,
    kinds: [],
    kind_nbytes: [],
    sentence: `fold of ${step}`,
  });
  const all = {
    pattern: "^what fills",
    sentence: "all steps",
    labels: [],
    line: "",
  };
  const made = {
    ...scene(),
    folds: [0, 1, 2].map(fold),
    saved_kinds: [],
    questions: [all],
  };
  const ask = (text, shown) =>
    answerQuestion({ scene: made }, text, shown)?.sentence;
  assert.equal(ask("what fills memory"), "all steps");
  assert.equal(ask("what fills memory", 2), "fold of 2");
  assert.equal(ask("what fills memory in step 8?", 2), "fold of 1");
  assert.equal(ask("what fills memory in step 99"), undefined);
});

test("of steps that hold the same, the last is shown first", () => {
  const folds = (...peaks) =>
    peaks.map((peak_nbytes) => ({ peak_nbytes, drawn: true }));
  assert.equal(largestFold({ folds: folds(91, 91, 91) }), 2);
  assert.equal(largestFold({ folds: folds(91, 92, 91) }), 1);
  assert.equal(largestFold({ folds: [] }), -1);
  const [whole, part] = folds(91, 90);
  assert.equal(
    largestFold({ folds: [whole, { ...part, shared_nbytes: 1 }] }),
    1,
  );
  const [first, ...rest] = folds(91, 91);
  assert.equal(
    largestFold({
      folds: [first, ...rest.map((each) => ({ ...each, drawn: false }))],
    }),
    0,
  );
});
