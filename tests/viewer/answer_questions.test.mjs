/** scene/answer_questions.js: questions of the search field. */

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  answerMarkdown,
  answerQuestion,
  exampleQuestions,
} from "../../assets/viewer/scene/answer_questions.js";
import {
  phaseTimes,
  timeSentence,
} from "../../assets/viewer/scene/phase_times.js";
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

test("a parameter that had a gradient and has none at the end is explained as one without", () => {
  const text = "head.weight is None at the end: cleared at train.py:12";
  const cleared = makeIndex({
    ...TABLES,
    answers: [{ ...TABLES.answers[0], subject: "parameter head.weight" }],
    cause_steps: [{ ...TABLES.cause_steps[0], text, lineno: 12 }],
  });
  const { sentence, lineno } = answerQuestion(cleared, "why head.weight");
  assert.deepEqual([sentence, lineno], [`${text}.`, 12]);
});

test("the norm of a gradient is part of the answer", () => {
  const { sentence } = answerQuestion(sceneIndex, "why no gradient: head");
  assert.equal(sentence, "head.weight got a gradient, norm 0.250.");
});

test("a recorded answer has its line, its fix and the storage that it is about", () => {
  const recorded = small({
    questions: [
      {
        ...ASKED,
        pattern: "^(?:who wrote g$)",
        sentence:
          "mul_ at train.py:11 wrote g in place after it was saved for backward.",
        filename: "train.py",
        lineno: 11,
        line: "    g *= scale",
        fix: "g = g * scale",
        storage: 1,
      },
    ],
  });
  const answer = answerQuestion(recorded, "who wrote g?");
  assert.deepEqual([answer.lineno, answer.line], [11, "g *= scale"]);
  assert.deepEqual(answer.link, { storage: 1 });
  const markdown = answerMarkdown("who wrote g", answer);
  assert.ok(markdown.startsWith("**who wrote g**\n\nmul_ at train.py:11"));
  assert.ok(markdown.includes("Fix:\n```python\ng = g * scale\n```"));
});

test("why is it slow is answered by the phases and the slowest line", () => {
  const answer = answerQuestion(sceneIndex, "why is it slow?");
  assert.deepEqual(
    answer,
    answerQuestion(sceneIndex, "where does the time go"),
  );
  const line = answerQuestion(sceneIndex, "slowest line").sentence;
  const range = [0, sceneIndex.end];
  assert.equal(
    answer.sentence,
    `${timeSentence(phaseTimes(sceneIndex, range, -1))} ${line}`,
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
  const time = { call: -1, origin: -1, step: 0, count: 1 };
  const timed = makeIndex({
    ...TABLES,
    nodes: [{ ...node, born_ns: 0, forward_ns: 1e6, runs_ns: [2e6, 4e6] }],
    call_times: [
      { ...time, module: "enc", phase: "forward", ns: 1e6 },
      { ...time, module: "enc", phase: "backward", ns: 2e6 },
    ],
  });
  assert.match(
    answerQuestion(timed, "slowest module").sentence,
    /^enc takes 3 ms, 30 % of 10 ms, 2 ms of it in backward/,
  );
});

test("the slowest module is the first one of its bars, and what is in none is one row", () => {
  const row = (module, phase, ns) => ({
    ...{ call: -1, origin: -1, step: 0, count: 1 },
    ...{ module, phase, ns },
  });
  const timed = makeIndex({
    ...TABLES,
    nodes: [],
    call_times: [
      row("", "forward", 2e6),
      row("enc", "forward", 3e6),
      row("", "backward", 2e6),
    ],
  });
  const { sentence, bars } = answerQuestion(timed, "slowest module");
  assert.match(sentence, /^no module takes 4 ms, 40 % of 10 ms/);
  assert.deepEqual(
    bars.map(([label, amount]) => [label, amount]),
    [
      ["no module", "4 ms"],
      ["enc", "3 ms"],
    ],
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
    /^Compiling takes 50 % of 10 ms; outside 50 %\. train.py:11 takes 3 ms, 30 % of 10 ms/,
  );
  assert.deepEqual(bars[0].slice(0, 3), ["0/0", "5 ms", 0.5]);
  assert.deepEqual(link, { view: "timeline" });
});

test("what fills memory in a step names the line that keeps most in it", () => {
  const held = (lineno, nbytes, holds) => ({
    storage_id: lineno,
    filename: "train.py",
    lineno,
    nbytes,
    holds,
  });
  const stepped = makeIndex({
    ...TABLES,
    steps: [
      { number: 0, start_ns: 0, end_ns: 10 },
      { number: 1, start_ns: 10, end_ns: 20 },
    ],
    counted_storages: [
      held(11, 50, [1, 9]),
      held(11, 10, [11, 19]),
      held(12, 30, [11, 19]),
    ],
    folds: [
      {
        step: 1,
        sentence: "40 B held.",
        kinds: [],
        kind_nbytes: [],
        peak_nbytes: 40,
      },
    ],
  });
  const { sentence, lineno } = answerQuestion(
    stepped,
    "what fills memory in step 1",
  );
  assert.equal(
    sentence,
    "40 B held. The line that keeps most is train.py:12, 30 B.",
  );
  assert.equal(lineno, 12);
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
  storage: -1,
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
