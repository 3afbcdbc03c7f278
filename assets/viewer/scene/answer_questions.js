// @ts-check
/** Questions that the search field answers: gradients, writes, memory and time, in plain words. */

import {
  formatBytes,
  formatDuration,
  formatNorm,
  formatPlace,
  plural,
  placeOf,
  nameRange,
} from "./format_numbers_and_names.js";
import { kindTitles } from "./saved_kind_colors.js";
import { timedSteps } from "./step_of_time_or_node.js";
import { phaseTimes, shareText, timeSentence } from "./phase_times.js";
import { predictMemory } from "./predict_memory.js";
import { profileRange } from "./range_profile.js";
import { isHeldAtPeak } from "./storage_holds.js";

/** @typedef {import("./scene_index.js").SceneIndex} SceneIndex */

/**
 * @typedef {object} Answer
 * @property {string} sentence
 * @property {[label: string, amount: string, share: number, kind: string][]} bars of the picture;
 *   the name of a kind of saved tensor gives its color
 * @property {string} filename "" without a line
 * @property {number} lineno
 * @property {string} line its text
 * @property {string} fix "" without one
 * @property {Link | null} link
 * @property {string[]} [asks] questions on what may be meant
 */

/** @typedef {{view: string} | {asks: string} | {storage: number} | {line: true}} Link */

/** @type {[pattern: RegExp, answer: (sceneIndex: SceneIndex, subject: string, step: number) => Answer | null][]} */
const QUESTIONS = [
  [/^why (?:is (?:there )?)?no grad(?:ient)?s?\b[:\s]*(?:of|for|in)?\s*(.*)/, whyNoGradient],
  [/^why (?:is|has|does|did) (?:the )?grad(?:ient)? (?:of|for) (.+?)(?: .*)?$/, whyNoGradient],
  [
    /^why (?:is|has|does|did) (.+?)(?:\.grad|'s grad(?:ient)?| (?:has|have|get) no grad| none\b).*$/,
    whyNoGradient,
  ],
  [/^(?:does|has|did) (\S+) (?:have|get|got) (?:a )?grad(?:ient)?$/, whyNoGradient],
  [/^(?:what (?:would|does|if) )?(?:i )?checkpoint(?:ing)? (\S+)(?: (?:save|free)s?)?$/, whatIf],
  [/^what (?:holds|keeps|is)\s+([\d.]+ ?[kmgt]?i?b)\b/, whatHolds],
  [
    /^(?:slowest (line|module)|which (line|module) (?:is slow|takes)|where does (?:the )?time go|what (?:takes (?:the )?time|is slow)|why is (?:it|this|the step|my step|training) (?:so )?slow)\b.*/,
    slowest,
  ],
  [/^what (?:fills|holds|keeps)\b.*/, whatFills],
  [/^why\s+([^\s]+)$/, whyNoGradient],
];

const MAX_BARS = 5;
/** Sizes that differ by less than this share are meant by a rounded number. */
const ROUNDED = 0.05;

/**
 * @param {SceneIndex} sceneIndex
 * @param {string} text
 * @param {number} [shown] index of the step that all views show, unless the question names one
 * @returns {Answer | null} null if it is no question, or the recording does not answer it
 */
export function answerQuestion(sceneIndex, text, shown = -1) {
  const [words, number] = /\s*\b(?:in|of) step (\d+)/.exec(text) ?? [""];
  const step = words
    ? sceneIndex.scene.steps.findIndex((each) => String(each.number) === number)
    : shown;
  if (words && step < 0) return null;
  const question = text
    .replace(words, "")
    .trim()
    .replace(/[?\s]+$/, "")
    .toLowerCase();
  for (const [pattern, answer] of QUESTIONS) {
    const found = pattern.exec(question);
    const known = found && answer(sceneIndex, (found[1] ?? found[2] ?? "").trim(), step);
    if (known) return known;
  }
  const row = [...sceneIndex.scene.questions].find(({ pattern }) => RegExp(pattern).test(question));
  if (!row) return null;
  const {
    sentence,
    labels,
    amounts,
    shares,
    kinds,
    asks,
    filename,
    lineno,
    line,
    fix,
    view,
    storage,
  } = row;
  return {
    sentence,
    bars: labels.map((label, at) => [label, amounts[at], shares[at] / 1000, kinds[at]]),
    asks,
    filename,
    lineno,
    line: line.trim(),
    fix,
    link: storage >= 0 ? { storage } : view === "source" ? { line: true } : { view },
  };
}

/**
 * @param {SceneIndex} sceneIndex
 * @returns {string[]} questions that the recording answers
 */
export function exampleQuestions({ scene }) {
  const listed = [...scene.questions].map(({ listed }) => listed);
  return [...listed, scene.call_times.length ? "slowest line" : ""].filter(Boolean);
}

/**
 * @param {SceneIndex} sceneIndex
 * @param {{filename: string, lineno: number}} place
 * @returns {Pick<Answer, "filename" | "lineno" | "line">}
 */
function lineAt({ source }, { filename, lineno }) {
  return { filename, lineno, line: source.get(filename)?.get(lineno)?.trim() ?? "" };
}

const NO_LINE = { filename: "", lineno: 0, line: "" };

/**
 * @param {import("../types.js").Scene} scene
 * @returns {{name: string, grad: string, norm: number | null}[]} of all parameters, "unused" too
 */
function parameters({ parameter_badges, unused_parameters }) {
  const used = new Map(
    parameter_badges.filter(({ name }) => name).map((each) => [each.name, each]),
  );
  return [
    ...[...unused_parameters].map(({ name, requires_grad }) => ({
      name,
      grad: requires_grad ? "unused" : "frozen",
      norm: null,
    })),
    ...[...used.values()].map(({ name, grad, norm }) => ({ name, grad, norm })),
  ];
}

/**
 * @param {SceneIndex} sceneIndex
 * @param {string} subject
 * @returns {Answer | null}
 */
function whyNoGradient(sceneIndex, subject) {
  const { scene } = sceneIndex;
  if (!subject) return null;
  const all = parameters(scene);
  const named = all.filter(({ name }) => name.toLowerCase().includes(subject));
  const found =
    named.find(({ name }) => name.toLowerCase() === subject) ??
    named.find(({ grad }) => grad !== "ok" && grad !== "frozen") ??
    named[0];
  if (!found) return null;
  const { name, grad, norm } = found;
  const answer = scene.answers.find((each) => each.subject === `parameter ${name}`);
  // It may have got one before, and none in the last backward.
  if (grad === "ok" && answer?.question !== "no gradient") {
    const size = norm === null ? "" : `, norm ${formatNorm(norm)}`;
    const sentence = `${name} got a gradient${size}.`;
    return { sentence, bars: [], ...NO_LINE, fix: "", link: { asks: name } };
  }
  const steps = (answer?.steps ?? []).map((at) => scene.cause_steps[at]);
  const proven = steps.slice(0, steps.length - (answer?.alternatives ?? 0));
  const [symptom, ...causes] = proven;
  const cause = causes.length ? causes.findLast(({ lineno }) => lineno) : symptom;
  // The line is that of the cause: the text of another step would be read as what it does.
  const texts = [...new Set([symptom, cause ?? proven.at(-1)])].flatMap((step) => step?.text ?? []);
  const stopped = scene.nodes.find(({ state }) => state === "failed");
  if (stopped && grad === "none") texts.push(`backward stopped at ${stopped.name}`);
  const plain =
    grad === "unused"
      ? `no recorded op reads ${name}`
      : grad === "frozen"
        ? `${name} does not require a gradient`
        : `the gradient of ${name} is ${grad === "nan" ? "not finite" : grad}`;
  return {
    sentence: `${texts.length ? texts.join("; ") : plain}.`,
    bars: [],
    ...(cause?.lineno
      ? { filename: cause.filename, lineno: cause.lineno, line: cause.line }
      : NO_LINE),
    fix: answer?.fix ?? "",
    link: { asks: name },
  };
}

/**
 * @param {SceneIndex} sceneIndex
 * @param {string} subject modules: "encoder", or "blocks.*"
 * @param {number} step index, -1 for all
 * @returns {Answer | null} what checkpointing them would save
 */
function whatIf({ scene }, subject, step) {
  const all = [...new Set(scene.module_calls.map(({ module }) => module))];
  const pattern = subject.replace(/[^\w*]/g, "\\$&").replace(/\*/g, "\\d+");
  const [exact, inside] = ["^", "\\."].map((start) => new RegExp(`${start}${pattern}$`, "i"));
  const own = all.filter((name) => exact.test(name));
  const modules = own.length ? own : all.filter((name) => inside.test(name));
  if (!modules.length) return null;
  const as = (/** @type {string[]} */ names) =>
    predictMemory(scene, new Map(names.map((name) => [name, "checkpoint"])), step);
  const [before, after] = [as([]), as(modules)];
  const freed = before.peak - after.peak;
  const name = nameRange(modules[0], modules[modules.length - 1]);
  const time = after.recomputeNs ? `, recomputed in ${formatDuration(after.recomputeNs)}` : "";
  const [was, is] = [before.peak, after.peak].map(formatBytes);
  const sentence =
    is === was
      ? `Checkpointing ${name} frees ${freed > 0 ? formatBytes(freed) : "nothing"} of ${was}: backward computes it again while all else is held.`
      : `With ${name} checkpointed, ${is} would be held at the peak instead of ${was}: ${formatBytes(Math.abs(freed))} ${freed < 0 ? "more" : "less"}${time}.`;
  return { sentence, bars: [], ...NO_LINE, fix: "", link: { view: "memory" } };
}

/**
 * @param {SceneIndex} sceneIndex
 * @param {string} subject "36 mb"
 * @returns {Answer | null}
 */
function whatHolds(sceneIndex, subject) {
  const { scene } = sceneIndex;
  const [, digits, unit] = /^([\d.]+) ?([kmgt]?)(i?)b/.exec(subject) ?? ["", "0", ""];
  const base = subject.includes("ib") ? 1024 : 1000;
  const nbytes = Number(digits) * base ** ["", "k", "m", "g", "t"].indexOf(unit);
  const isMeant = (/** @type {number} */ size) => Math.abs(size - nbytes) <= ROUNDED * nbytes;
  if (isMeant(scene.summary.peak_nbytes + scene.summary.older_nbytes)) {
    return answerQuestion(sceneIndex, "what fills memory");
  }
  const found = scene.storages.filter((each) => isMeant(each.nbytes));
  if (found.length) {
    const [{ name, slots, module, index }] = found;
    const others = found.length > 1 ? ` and ${plural(found.length - 1, "other")}` : "";
    return {
      sentence: `${name}${others}, saved for ${slots[0] ?? "backward"}${module && ` in ${module}`}.`,
      bars: [],
      ...lineAt(sceneIndex, found[0]),
      fix: "",
      link: { storage: index },
    };
  }
  const line = linesOf(scene.counted_storages).find((each) => isMeant(each.nbytes));
  if (!line) return null;
  const sentence = `${placeOf(line)} keeps ${formatBytes(line.nbytes)} in ${plural(line.count, "storage")}.`;
  return { sentence, bars: [], ...lineAt(sceneIndex, line), fix: "", link: { line: true } };
}

/**
 * @param {Iterable<import("../types.js").SceneCountedStorage>} storages
 * @returns {{filename: string, lineno: number, nbytes: number, count: number}[]} by line
 */
function linesOf(storages) {
  const lines = new Map();
  for (const { filename, lineno, nbytes } of storages) {
    if (!lineno) continue;
    const key = `${lineno} ${filename}`;
    const row = lines.get(key) ?? { filename, lineno, nbytes: 0, count: 0 };
    lines.set(key, row);
    row.nbytes += nbytes;
    row.count += 1;
  }
  return [...lines.values()].sort((a, b) => b.nbytes - a.nbytes);
}

/**
 * Return the answer to "what fills memory" for a step, null for all steps.
 *
 * @param {SceneIndex} sceneIndex
 * @param {string} _
 * @param {number} step index, -1 for all
 * @returns {Answer | null}
 */
function whatFills(sceneIndex, _, step) {
  const { scene } = sceneIndex;
  const fold = scene.folds.find((each) => step >= 0 && each.step === step);
  if (!fold) return null;
  const titles = kindTitles(scene);
  const bars = fold.kinds.slice(0, MAX_BARS).map((kind, at) => {
    const nbytes = fold.kind_nbytes[at];
    const share = nbytes / (fold.peak_nbytes || 1);
    return /** @type {Answer["bars"][number]} */ ([
      titles.get(kind) ?? kind,
      formatBytes(nbytes),
      share,
      kind,
    ]);
  });
  const [line] = linesOf(scene.counted_storages.filter(isHeldAtPeak(scene, step)));
  const most =
    line && ` The line that keeps most is ${placeOf(line)}, ${formatBytes(line.nbytes)}.`;
  const sentence = `${fold.sentence}${most ?? ""}`;
  const at = line ? lineAt(sceneIndex, line) : NO_LINE;
  return { sentence, bars, ...at, fix: "", link: { view: "fold" } };
}

/**
 * Return the line or module with the most time, and compilation if that takes more.
 *
 * @param {SceneIndex} sceneIndex
 * @param {string} by "module", else lines
 * @param {number} step index, -1 for all
 * @returns {Answer | null}
 */
function slowest(sceneIndex, by, step) {
  const { range, step: timed } = timedSteps(sceneIndex, step);
  const rows = profileRange(sceneIndex, range, by === "module" ? by : "line", timed);
  const line = by === "module" ? rows[0] : rows.find(({ filename }) => filename);
  if (!line) return null;
  const times = phaseTimes(sceneIndex, range, timed);
  const { active, phases } = times;
  const compiling = phases.reduce((sum, { compiled }) => sum + compiled, 0);
  const lead = !by
    ? `${timeSentence(times)} `
    : compiling > line.time
      ? `Compiling takes ${shareText(compiling, active)} of the time; `
      : "";
  const { backward = 0, recompute = 0 } = line.parts;
  const later = backward + recompute;
  const parts = later ? `, ${formatDuration(later)} of it in backward` : "";
  return {
    sentence: `${lead}${line.filename ? placeOf(line) : line.label} takes ${formatDuration(line.time)}, ${shareText(line.time, active)} of ${formatDuration(active)}${parts}.`,
    bars: rows
      .slice(0, MAX_BARS)
      .map(({ label, time }) => [label, formatDuration(time), time / (active || 1), ""]),
    ...lineAt(sceneIndex, line),
    fix: "",
    link: { view: "timeline" },
  };
}

/**
 * @param {string} question
 * @param {Answer} answer
 * @returns {string} for an issue or a chat
 */
export function answerMarkdown(question, { sentence, bars, filename, lineno, line, fix }) {
  const rows = bars.map(
    ([label, amount, share]) => `| ${label} | ${amount} | ${Math.round(100 * share)} % |`,
  );
  return [
    `**${question}**`,
    sentence,
    rows.length ? ["| | | |", "|---|---|---|", ...rows].join("\n") : "",
    lineno ? `\`${formatPlace(filename, lineno)}\`` : "",
    line && `\`\`\`python\n${line}\n\`\`\``,
    fix && `Fix:\n\`\`\`python\n${fix}\n\`\`\``,
  ]
    .filter(Boolean)
    .join("\n\n");
}
