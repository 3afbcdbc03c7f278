/** scene/answer_questions.js: questions of the search field. */

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  answerMarkdown,
  answerQuestion,
  exampleQuestions,
} from "../../assets/viewer/scene/answer_questions.js";
import { makeIndex } from "./scenes.mjs";

const STORAGE = {
  index: 0,
  storage_id: 7,
  name: "g",
  slots: ["MulBackward0.self"],
  nbytes: 36_000_000,
  shape: "",
  dtype: "",
  module: "enc",
  node: 0,
  filename: "train.py",
  lineno: 8,
  state: "held",
  version: 0,
  seen_version: null,
  holds: [0, -1],
  keepers: [],
  call: -1,
};

const WRITE = {
  storage: 0,
  time_ns: 5,
  kind: "written",
  version: 1,
  op: "mul_",
  ok: 0,
  filename: "train.py",
  lineno: 11,
  nbytes: 0,
};

const FINDING = {
  slug: "saved-tensor-mutated",
  title: "g was written",
  confidence: "certain",
  explanation: "",
  fix: "g = g * scale",
  culprit_file: "train.py",
  culprit_line: 11,
  culprit_text: "g *= scale",
  victim_file: "",
  victim_line: 0,
  victim_text: "",
  nodes: [],
  region: -1,
};

const PARAMETER = {
  node: 0,
  name: "head.weight",
  label: "weight",
  shape: "2",
  grad: "ok",
  shared: 1,
  width: 1,
  norm: 0.25,
};

const UNUSED = {
  name: "aux.weight",
  module: "aux",
  shape: "2",
  requires_grad: 1,
  called: 0,
};

const TABLES = {
  storages: [STORAGE],
  storage_events: [WRITE],
  findings: [FINDING],
  parameter_badges: [PARAMETER],
  unused_parameters: [UNUSED],
  lines: [{ filename: "train.py", lineno: 11, text: "    g *= scale" }],
  answers: [
    {
      subject: "parameter aux.weight",
      target: "aux.weight",
      question: "no gradient",
      ordinary: 0,
      steps: [0],
      alternatives: 0,
      to_record: "",
    },
  ],
  cause_steps: [
    {
      text: "no recorded op reads aux.weight",
      filename: "",
      lineno: 0,
      line: "",
      nodes: [],
      time_ns: -1,
    },
  ],
  counted_storages: [],
  regions: [],
  budget_plans: [],
  folds: [],
  ribbons: [],
  saved_kinds: [],
  call_frames: [
    {
      parent: -1,
      filename: "train.py",
      lineno: 11,
      function: "step",
      installed: 0,
    },
    {
      parent: -1,
      filename: "train.py",
      lineno: 12,
      function: "step",
      installed: 0,
    },
  ],
  call_times: [
    { call: 0, origin: 0, phase: "forward", step: -1, count: 1, ns: 1_000_000 },
    {
      call: 1,
      origin: 0,
      phase: "backward",
      step: -1,
      count: 1,
      ns: 2_000_000,
    },
    { call: 1, origin: 1, phase: "forward", step: -1, count: 1, ns: 1_000_000 },
  ],
  summary: { backwards: 1, peak_nbytes: 0, older_nbytes: 0, end_ns: 10e6 },
};
const sceneIndex = makeIndex(TABLES);

test("a parameter without a gradient is explained by the recorded answer", () => {
  for (const text of [
    "why no gradient: aux",
    "why aux.weight",
    "Why is there no grad for aux.weight?",
    "why no gradient",
  ]) {
    const answer = answerQuestion(sceneIndex, text);
    assert.equal(answer.sentence, "no recorded op reads aux.weight.");
    assert.deepEqual(answer.link, { asks: "aux.weight" });
  }
});

test("the line of an answer has the text of its own step", () => {
  const step = (text, lineno) => ({
    ...TABLES.cause_steps[0],
    text,
    filename: "train.py",
    lineno,
  });
  const answered = makeIndex({
    ...TABLES,
    answers: [{ ...TABLES.answers[0], steps: [0, 1, 2], fix: "g = g * scale" }],
    cause_steps: [
      step("aux.weight got no gradient", 12),
      step("it is first read here", 8),
      step("g was written before backward needed it", 11),
    ],
  });
  const answer = answerQuestion(answered, "why is aux.weight None");
  assert.equal(
    answer.sentence,
    "aux.weight got no gradient; g was written before backward needed it.",
  );
  assert.deepEqual([answer.lineno, answer.fix], [11, "g = g * scale"]);
});

test("the norm of a gradient is part of the answer", () => {
  const { sentence } = answerQuestion(sceneIndex, "why no gradient: head");
  assert.equal(sentence, "head.weight got a gradient, norm 0.250.");
});

test("a harmful write has its line and its fix", () => {
  const answer = answerQuestion(sceneIndex, "who wrote g");
  assert.equal(
    answer.sentence,
    "mul_ at train.py:11 wrote g in place after it was saved for backward.",
  );
  assert.equal(answer.line, "g *= scale");
  assert.equal(answer.fix, "g = g * scale");
  const markdown = answerMarkdown("who wrote g", answer);
  assert.ok(markdown.startsWith("**who wrote g**\n\nmul_ at train.py:11"));
  assert.ok(markdown.includes("Fix:\n```python\ng = g * scale\n```"));
});

test("a number of bytes finds the tensor that has about as many", () => {
  const { sentence, link } = answerQuestion(sceneIndex, "what holds 36 MB?");
  assert.equal(sentence, "g, saved for MulBackward0.self in enc.");
  assert.deepEqual(link, { storage: 0 });
  assert.equal(answerQuestion(sceneIndex, "what holds 12 MB"), null);
});

test("the slowest line has the time of its ops and of their gradients", () => {
  const { sentence, bars } = answerQuestion(sceneIndex, "slowest line");
  assert.equal(
    sentence,
    "train.py:11 takes 3 ms, 30 % of 10 ms: 1 ms itself, 2 ms in backward.",
  );
  assert.deepEqual(
    bars.map(([, , share]) => share),
    [0.3, 0.1],
  );
});

test("compilation that takes more than each line is named first", () => {
  const compile = {
    kind: "compile",
    label: "0/0",
    depth: 0,
    ref: -1,
    start_ns: 4e6,
    end_ns: 9e6,
  };
  const compiled = makeIndex({ ...TABLES, spans: [compile] });
  const { sentence, bars, link } = answerQuestion(
    compiled,
    "where does time go",
  );
  assert.match(
    sentence,
    /^Compiling takes 50 % of the time; train.py:11 takes 3 ms, 30 % of 10 ms/,
  );
  assert.deepEqual(bars[0].slice(0, 3), ["0/0", "5 ms", 0.5]);
  assert.deepEqual(link, { view: "timeline" });
});

test("words that are no question have no answer, and examples have one", () => {
  for (const text of ["relu", "op:mul saved>1MB", "who wrote nothing", ""]) {
    assert.equal(answerQuestion(sceneIndex, text), null);
  }
  const examples = exampleQuestions(sceneIndex);
  assert.deepEqual(examples, [
    "which line broke it",
    "why no gradient: aux.weight",
    "who wrote g",
    "slowest line",
  ]);
});

const REGION = {
  parent: -1,
  module: "h.0",
  function: "forward",
  recomputes: 1,
  freed_nbytes: 3_000_000,
  held_nbytes: 8_000,
  recompute_ns: 2_000_000,
};
const FOLD = {
  drawn: 1,
  peak_nbytes: 9_000_000,
  sentence: "GELU.",
  kinds: ["activation"],
  kind_nbytes: [1],
};
const PLAN = {
  peak_nbytes: 6_000_000,
  recomputed_nbytes: 3_000_000,
  added_ns: 2_000_000,
  modules: ["h.0"],
  filename: "train.py",
  lineno: 7,
  before: "x = block(x)",
  after: "x = checkpoint(block, x)",
};
const summary = { backwards: 1, peak_nbytes: 9_000_000, older_nbytes: 0 };
const small = (tables) =>
  makeIndex({
    storages: [],
    storage_events: [],
    findings: [],
    parameter_badges: [],
    unused_parameters: [],
    lines: [],
    answers: [],
    cause_steps: [],
    call_times: [],
    call_frames: [],
    saved_kinds: [],
    regions: [],
    budget_plans: [],
    folds: [FOLD],
    ...tables,
    summary: { ...summary, ...tables.summary },
  });

test("the line that broke the step is that of the first finding", () => {
  const { sentence, lineno, fix } = answerQuestion(
    sceneIndex,
    "Which line broke it?",
  );
  assert.deepEqual(
    [sentence, lineno, fix],
    ["g was written.", 11, "g = g * scale"],
  );
  assert.equal(
    answerQuestion(small({}), "which line broke it").sentence,
    "No problems found.",
  );
  assert.equal(
    answerQuestion(
      small({ summary: { error_type: "ValueError" } }),
      "what went wrong",
    ).sentence,
    "ValueError; no line is known to be at fault.",
  );
});

test("recorded checkpoints say what they free and cost, not the plans", () => {
  const inner = { ...REGION, parent: 0, module: "h.0.mlp" };
  const recorded = small({
    regions: [REGION, { ...REGION, module: "h.1" }, inner],
    budget_plans: [PLAN],
  });
  const answer = answerQuestion(recorded, "what does checkpointing save");
  assert.equal(
    answer.sentence,
    "Checkpoints free 6.0 MB between forward and backward for 4 ms of recomputation, in 2 regions; they hold 16 kB of arguments.",
  );
  assert.deepEqual(
    answer.bars.map(([label]) => label),
    ["h.0", "h.1"],
  );
});

test("the peak that checkpoints lower comes first", () => {
  const recorded = small({
    regions: [REGION],
    summary: { without_checkpoints_nbytes: 10_000_000, peak_nbytes: 8_000_000 },
  });
  assert.match(
    answerQuestion(recorded, "what does checkpointing save").sentence,
    /^About 2.0 MB less are held at the peak, 8.0 MB. Checkpoints free 3.0 MB/,
  );
});

test("without checkpoints, the plan with the lowest peak is the answer", () => {
  const plans = [{ ...PLAN, peak_nbytes: 8_000_000 }, PLAN];
  const answer = answerQuestion(
    small({ budget_plans: plans }),
    "what would checkpointing save",
  );
  assert.equal(
    answer.sentence,
    "Checkpointing h.0 would hold 6.0 MB at the peak instead of 9.0 MB, and compute 3.0 MB again in about 2 ms (predicted).",
  );
  assert.equal(answer.fix, "x = checkpoint(block, x)");
  assert.equal(
    answerQuestion(small({}), "what does checkpointing save").sentence,
    "No module is predicted to lower the peak if it is checkpointed.",
  );
});

test("questions on a gradient are in the words of the program", () => {
  for (const question of [
    "why is aux.weight.grad None?",
    "why is aux.weight None?",
    "why is the gradient of aux.weight None",
    "why does aux.weight have no gradient",
  ]) {
    assert.equal(
      answerQuestion(sceneIndex, question).sentence,
      "no recorded op reads aux.weight.",
    );
  }
  const frozen = small({
    unused_parameters: [{ ...UNUSED, requires_grad: 0 }],
  });
  assert.equal(
    answerQuestion(frozen, "why no gradient: aux.weight").sentence,
    "aux.weight does not require a gradient.",
  );
  assert.deepEqual(exampleQuestions(frozen), [
    "what fills memory",
    "what does checkpointing save",
  ]);
});
