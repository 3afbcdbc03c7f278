// @ts-check
/** Buttons that copy text to the clipboard. */

import { button, h } from "./dom.js";
import { icon } from "./canvas/draw_icon.js";

const CONFIRM_MS = 1_200;

/**
 * @param {string} what "name", "path" or "line"
 * @param {string} text
 * @returns {HTMLElement}
 */
export function copyButton(what, text) {
  const made = button(`Copy ${what}`, "agv-copy", () => press(), icon("copy"), what);
  const press = async () => {
    await copyText(text);
    made.replaceChildren(icon("check"), what);
    setTimeout(() => made.replaceChildren(icon("copy"), what), CONFIRM_MS);
  };
  return made;
}

/**
 * Copy text, also in pages that may not use the clipboard API.
 *
 * @param {string} text
 */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = h("textarea", "agv-visually-hidden");
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}
