// @ts-check
/** Buttons that copy a text. */

import { button, h } from "./dom.js";
import { icon } from "./canvas/icons.js";

const DONE_MS = 1_200;

/**
 * @param {string} what is copied: "name", "path", "line"
 * @param {string} text
 * @returns {HTMLElement}
 */
export function copyButton(what, text) {
  const made = button(`Copy ${what}`, "agv-copy", () => press(), icon("copy"), what);
  const press = async () => {
    await copyText(text);
    made.replaceChildren(icon("check"), what);
    setTimeout(() => made.replaceChildren(icon("copy"), what), DONE_MS);
  };
  return made;
}

/**
 * Put a text on the clipboard, in pages too that may not use it freely.
 *
 * @param {string} text
 */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = h("textarea", { class: "agv-hidden" });
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}
