// @ts-check
/** The answer to a question in the search field: sentence, picture, line, fix, links. */

import { copyButton } from "../copy_button.js";
import { button, h } from "../dom.js";
import { kindFill } from "../scene/saved_kind_colors.js";
import { formatPlace } from "../scene/format_numbers_and_names.js";
import { answerMarkdown } from "../scene/answer_questions.js";

/** @typedef {import("../scene/answer_questions.js").Answer} Answer */

/**
 * Show what an answer links to.
 *
 * @param {import("../shared_view_state.js").Store} store
 * @param {Answer} answer
 */
export function openAnswer(store, { link, filename, lineno }) {
  if (!link) return;
  if ("view" in link) store.set("view", link.view);
  else if ("asks" in link) store.ask(`parameter ${link.asks}`, link.asks);
  else if ("storage" in link) store.reveal({ kind: "storage", index: link.storage });
  else store.showLine(filename, lineno);
}

/**
 * @param {import("../shared_view_state.js").Store} store
 * @param {string} question
 * @param {Answer} answer
 * @param {() => void} close
 * @returns {HTMLElement}
 */
export function answerCard(store, question, answer, close) {
  const { sentence, bars, filename, lineno, line, fix, link } = answer;
  const most = Math.max(...bars.map(([, , share]) => share), 0.001);
  const rows = bars.map(([label, amount, share, kind]) => {
    const bar = h("span", "agv-answer-bar");
    bar.style.width = `${(100 * share) / most}%`;
    if (kind) bar.style.background = kindFill(store.scene, kind);
    return h(
      "div",
      "agv-answer-row",
      h("span", "", label),
      h("span", "", bar),
      h("b", "agv-right", amount),
    );
  });
  const open = () => {
    close();
    openAnswer(store, answer);
  };
  return h(
    "article",
    { class: "agv-answer", attrs: { "aria-label": "Answer" } },
    h("h3", { text: sentence }),
    ...rows,
    lineno > 0 && h("div", "agv-muted agv-mono", formatPlace(filename, lineno)),
    line && h("pre", "agv-fix", line),
    fix && h("h4", "", "Fix"),
    fix && h("pre", "agv-fix", fix),
    h(
      "div",
      "agv-answer-buttons",
      link && button("Show what the answer is about", "agv-button", open, "Show"),
      copyButton("Markdown", answerMarkdown(question, answer)),
    ),
  );
}
