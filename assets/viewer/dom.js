// @ts-check
/** Elements without markup: every text goes through `textContent`. */

/**
 * @typedef {object} Attributes
 * @property {string} [class]
 * @property {string} [text]
 * @property {string} [title]
 * @property {Record<string, string | number | boolean | null>} [attrs] null or false leaves one out
 * @property {(event: any) => void} [onclick]
 */

/**
 * Make an element.
 *
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} [attributes]
 * @param {(Node | string | null | false | undefined)[]} children strings become text
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  if (attributes.class) element.className = attributes.class;
  if (attributes.title) element.title = attributes.title;
  if (attributes.text !== undefined) element.textContent = attributes.text;
  for (const [name, value] of Object.entries(attributes.attrs ?? {})) {
    if (value !== null && value !== false) element.setAttribute(name, String(value));
  }
  if (attributes.onclick) element.addEventListener("click", attributes.onclick);
  for (const child of children) {
    if (child) element.append(child);
  }
  return element;
}

/**
 * A button that does one thing.
 *
 * @param {string} label its accessible name, and its tooltip
 * @param {string} className
 * @param {(event: MouseEvent) => void} onclick
 * @param {(Node | string)[]} children
 * @returns {HTMLButtonElement}
 */
export function button(label, className, onclick, ...children) {
  const attrs = { type: "button", "aria-label": label };
  return h("button", { class: className, title: label, attrs, onclick }, ...children);
}

/**
 * A titled section of a panel.
 *
 * @param {string} title
 * @param {string} aside a figure at the title's right
 * @param {(Node | null | false)[]} children
 * @returns {HTMLElement}
 */
export function section(title, aside, ...children) {
  const head = h(
    "div",
    { class: "agv-section-head" },
    h("h4", { text: title }),
    h("span", { class: "agv-muted", text: aside }),
  );
  return h("section", { class: "agv-section" }, head, ...children);
}

/**
 * Name and value, line by line.
 *
 * @param {[string, string | Node][]} pairs those with an empty value are left out
 * @returns {HTMLElement}
 */
export function facts(pairs) {
  const list = h("dl", { class: "agv-facts" });
  for (const [name, value] of pairs) {
    if (value !== "") list.append(h("dt", { text: name }), h("dd", {}, value));
  }
  return list;
}

/**
 * Buttons of which one is on.
 *
 * @param {string[]} names
 * @param {string} first
 * @param {(name: string) => void} choose
 * @returns {HTMLElement}
 */
export function choice(names, first, choose) {
  const group = h("span", { class: "agv-choice", attrs: { role: "group" } });
  const mark = (/** @type {string} */ name) => {
    for (const child of group.children) {
      child.setAttribute("aria-pressed", String(child.textContent === name));
    }
  };
  for (const name of names) {
    const press = () => {
      mark(name);
      choose(name);
    };
    group.append(button(name, "", press, name));
  }
  mark(first);
  return group;
}
