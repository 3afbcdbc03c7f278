// @ts-check
/** Creates elements and listens to them; text is never parsed as markup. */

/**
 * @typedef {object} Attributes
 * @property {string} [class] names separated by spaces
 * @property {string} [text]
 * @property {string} [title]
 * @property {Record<string, string | number | boolean | null>} [attrs] null and false are left out
 * @property {(event: any) => void} [onclick]
 */

/**
 * Return a new element.
 *
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {string | Attributes} [options] names of classes, as in `Attributes`, or more
 * @param {(Node | string | null | false | 0 | undefined)[]} children strings become text nodes
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function h(tag, options = "", ...children) {
  const element = document.createElement(tag);
  const attributes = typeof options === "string" ? { class: options } : options;
  if (attributes.class) element.className = attributes.class;
  if (attributes.title) element.title = attributes.title;
  if (attributes.text !== undefined) element.textContent = attributes.text;
  for (const [name, value] of Object.entries(attributes.attrs ?? {})) {
    if (value !== null && value !== false) element.setAttribute(name, String(value));
  }
  if (attributes.onclick) listen(element, "click", attributes.onclick);
  for (const child of children) {
    if (child) element.append(child);
  }
  return element;
}

/**
 * Add a listener.
 *
 * @template {keyof HTMLElementEventMap} Type
 * @param {Element} target
 * @param {Type} type
 * @param {(event: HTMLElementEventMap[Type]) => void} listener
 * @param {AddEventListenerOptions} [options]
 */
export function listen(target, type, listener, options) {
  target.addEventListener(type, /** @type {(event: any) => void} */ (listener), options);
}

/**
 * Call a function when the size of an element changes, and once at the beginning.
 *
 * @param {Element} element
 * @param {() => void} listener
 * @returns {ResizeObserver}
 */
export function onResize(element, listener) {
  const observer = new ResizeObserver(listener);
  observer.observe(element);
  return observer;
}

/**
 * Move in a tree, or open and close its rows, with the keys of each tree on the web.
 *
 * @param {KeyboardEvent} event
 * @param {{level: number}[]} rows from level 1
 * @param {number} at the current one
 * @param {boolean | null} isOpen whether that is open, null if there is nothing in it
 * @param {{go: (at: number) => void, toggle: (opens: boolean) => void, enter: () => void}} act
 */
export function pressInTree(event, rows, at, isOpen, { go, toggle, enter }) {
  const around = rows.findLastIndex(({ level }, i) => i < at && level === rows[at].level - 1);
  const to = (/** @type {number} */ row) => () => rows[row] && go(row);
  const act = /** @type {Record<string, () => void>} */ ({
    ArrowDown: to(at + 1),
    ArrowUp: to(at - 1),
    Home: to(0),
    End: to(rows.length - 1),
    ArrowRight: isOpen === false ? () => toggle(true) : to(isOpen ? at + 1 : -1),
    ArrowLeft: isOpen ? () => toggle(false) : to(around),
    Enter: enter,
  })[event.key];
  if (!act) return;
  claim(event);
  act();
}

/**
 * Handle an event here: neither the browser nor an element around this one does.
 *
 * @param {Event} event
 */
export function claim(event) {
  event.preventDefault();
  event.stopPropagation();
}

/**
 * Move through a list with the arrow keys.
 *
 * @param {HTMLElement} list
 * @param {(step: 1 | -1) => void} move
 */
export function onArrows(list, move) {
  listen(list, "keydown", (event) => {
    const [, direction] = /^Arrow(Down|Right|Up|Left)$/.exec(event.key) ?? [];
    if (!direction) return;
    claim(event);
    move(direction === "Down" || direction === "Right" ? 1 : -1);
  });
}

/**
 * Return a button.
 *
 * @param {string} label its tooltip; its accessible name, if that contains its text
 * @param {string} className
 * @param {(event: MouseEvent) => void} onclick
 * @param {(Node | string)[]} children the label by default
 * @returns {HTMLButtonElement}
 */
export function button(label, className, onclick, ...children) {
  const attrs = { type: "button", "aria-label": label };
  if (!children.length) children.push(label);
  const element = h("button", { class: className, title: label, attrs, onclick }, ...children);
  // Voice control finds a button by its visible text.
  if (!label.includes(element.textContent ?? "")) element.removeAttribute("aria-label");
  return element;
}

/**
 * Return the heading of a list.
 *
 * @param {string} text
 * @param {(Node | string)[]} children shown on its right
 * @returns {HTMLElement}
 */
export function listHead(text, ...children) {
  const attrs = { role: "heading", "aria-level": 3 };
  return h("div", "agv-list-head", h("span", { attrs, text }), ...children);
}

/**
 * Return a section of a panel with a title.
 *
 * @param {string} title
 * @param {string} aside shown on the right of the title
 * @param {(Node | null | false)[]} children
 * @returns {HTMLElement}
 */
export function section(title, aside, ...children) {
  const head = h("div", "agv-section-head", h("h4", "", title), h("span", "agv-muted", aside));
  return h("section", "agv-section", head, ...children);
}

/**
 * Return a list of names and values.
 *
 * @param {[string, string | Node][]} pairs those with an empty value are left out
 * @returns {HTMLElement}
 */
export function propertyList(pairs) {
  const list = h("dl", "agv-properties");
  for (const [name, value] of pairs) {
    if (value !== "") list.append(h("dt", "", name), h("dd", {}, value));
  }
  return list;
}

/**
 * @param {Element} element
 * @param {boolean} on
 */
export const setPressed = (element, on) => element.setAttribute("aria-pressed", String(on));

/**
 * @param {Element} group of buttons
 * @param {string} name of the one that is pressed
 */
export const pressOne = (group, name) => {
  for (const child of group.children) setPressed(child, child.textContent === name);
};

/**
 * Return a row of buttons of which one is pressed.
 *
 * @param {string[]} names
 * @param {string} first
 * @param {(name: string) => void} choose
 * @returns {HTMLElement}
 */
export function choice(names, first, choose) {
  const group = h("span", { class: "agv-choice", attrs: { role: "group" } });
  for (const name of names) {
    const press = () => {
      pressOne(group, name);
      choose(name);
    };
    group.append(button(name, "", press, name));
  }
  pressOne(group, first);
  return group;
}

/**
 * @param {string} text which may end with a place, "keyword_spotting.py:31"
 * @returns {HTMLElement} the same; without room it loses the middle of the name, not the line
 */
export function placeText(text) {
  const [tail] = /.{0,6}:\d+( · .*)?$/.exec(text) ?? [""];
  return h("span", "agv-place", h("span", "", text.slice(0, text.length - tail.length)), tail);
}

/** Attributes of an element that scrolls sideways, also by keys. */
export const SCROLLS = { class: "agv-scroll", attrs: { tabindex: 0 } };

/**
 * @param {string} [label] what the picture shows, in words
 * @returns {HTMLCanvasElement} as large as the element around it
 */
export const chartCanvas = (label = "") =>
  h("canvas", { class: "agv-chart-canvas", attrs: { role: "img", "aria-label": label } });
