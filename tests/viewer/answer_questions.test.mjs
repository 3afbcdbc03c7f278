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
  questions: [],
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

test("who wrote a name that several tensors have opens the one that was written", () => {
  const [written] = TABLES.storages;
  const same = { ...written, index: 0 };
  const named = [same, { ...written, index: 1 }];
  const events = TABLES.storage_events.map((each) => ({
    ...each,
    storage: each.kind === "written" ? 1 : 0,
  }));
  const known = makeIndex({
    ...TABLES,
    storages: named,
    storage_events: events,
  });
  assert.deepEqual(answerQuestion(known, "who wrote g").link, { storage: 1 });
});

test("why is it slow is answered as the slowest line", () => {
  assert.deepEqual(
    answerQuestion(sceneIndex, "why is it slow?"),
    answerQuestion(sceneIndex, "slowest line"),
  );
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
    "train.py:11 takes 3 ms, 30 % of 10 ms, 2 ms of it in backward.",
  );
  assert.deepEqual(
    bars.map(([, , share]) => share),
    [0.3, 0.1],
  );
});

test("the slowest module has all its phases in one row", () => {
  const node = { index: 0, module: "enc", name: "ExpBackward0", op: "exp" };
  const timed = makeIndex({
    ...TABLES,
    nodes: [{ ...node, born_ns: 0, forward_ns: 1e6, runs_ns: [2e6, 4e6] }],
    module_times: [
      { module: "enc", phase: "forward", step: 0, count: 1, ns: 1e6 },
      { module: "enc", phase: "backward", step: 0, count: 1, ns: 2e6 },
    ],
  });
  assert.match(
    answerQuestion(timed, "slowest module").sentence,
    /^enc takes 3 ms, 30 % of 10 ms, 2 ms of it in backward/,
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
});

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
    folds: [],
    questions: [],
    ...tables,
    summary: { ...summary, ...tables.summary },
  });

const ASKED = {
  pattern: "^(?:what fills\\b)",
  listed: "what fills memory",
  sentence: "9.0 MB held at the peak: GELU.",
  labels: ["GELU"],
  amounts: ["6.0 MB"],
  shares: [667],
  kinds: ["activation"],
  asks: [],
  filename: "",
  lineno: 0,
  line: "",
  fix: "",
  view: "fold",
};

test("questions on the whole recording have the recorded answers", () => {
  const recorded = small({ questions: [ASKED] });
  const { sentence, bars, link } = answerQuestion(recorded, "What fills it?");
  assert.equal(sentence, "9.0 MB held at the peak: GELU.");
  assert.deepEqual(bars, [["GELU", "6.0 MB", 0.667, "activation"]]);
  assert.deepEqual(link, { view: "fold" });
  assert.deepEqual(exampleQuestions(recorded), ["what fills memory"]);
});

test("a question without a name has the questions on the names that may be meant", () => {
  const asks = ["who wrote g"];
  const pattern = "^(?:who wrote this tensor$)";
  const recorded = makeIndex({
    ...TABLES,
    questions: [{ ...ASKED, pattern, asks }],
  });
  const answer = answerQuestion(recorded, "who wrote this tensor?");
  assert.deepEqual(answer.asks, asks);
  assert.match(
    answerQuestion(recorded, asks[0]).sentence,
    /^mul_ at train.py:11 wrote g/,
  );
});

test("a tensor that nothing wrote has the line of the program that made it", () => {
  const frames = [
    {
      parent: -1,
      filename: "train.py",
      lineno: 11,
      function: "step",
      installed: 0,
    },
    {
      parent: 0,
      filename: "torch/f.py",
      lineno: 3,
      function: "dropout",
      installed: 1,
    },
  ];
  const plain = makeIndex({
    ...TABLES,
    storage_events: [{ ...WRITE, kind: "saved", ok: 1 }],
    storages: [{ ...STORAGE, call: 1 }],
    call_frames: frames,
  });
  const { sentence, lineno } = answerQuestion(plain, "who wrote g");
  assert.equal(
    sentence,
    "Nothing wrote g in place: it was made at train.py:11.",
  );
  assert.equal(lineno, 11);
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
});
