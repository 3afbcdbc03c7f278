// @ts-check
/** A picture of elements: their backgrounds, borders, words and canvases, as they are on display. */

import { fillBox } from "./shapes.js";

/** @typedef {import("../views/registry.js").Picture} Picture */
/** @typedef {{left: number, top: number, right: number, bottom: number}} Area */
/** @typedef {(ctx: any) => void} Painter */

const SIDES = /** @type {const} */ (["Top", "Right", "Bottom", "Left"]);
const MARGIN = 8;

/**
 * Return a picture of what an element displays, without the empty space below it.
 *
 * @param {HTMLElement} element
 * @param {import("./theme.js").Palette} palette
 * @returns {Picture}
 */
export function pagePicture(element, palette) {
  const origin = element.getBoundingClientRect();
  /** @type {Painter[]} */
  const painters = [];
  let bottom = 0;
  const place = (/** @type {DOMRect} */ { left, top, width, height }) => ({
    x: left - origin.left,
    y: top - origin.top,
    width,
    height,
  });
  const add = (/** @type {HTMLElement} */ at, /** @type {Area} */ clip) => {
    if (!at.checkVisibility()) return;
    const style = getComputedStyle(at);
    const area = at.getBoundingClientRect();
    const inside = style.overflow === "visible" ? clip : intersection(area, clip);
    addBox(painters, style, place(area), inside === clip || at === element);
    if (at instanceof HTMLCanvasElement) {
      const { x, y, width, height } = place(area);
      painters.push((ctx) => ctx.drawImage(at, x, y, width, height));
      bottom = Math.max(bottom, y + height);
    }
    for (const child of at.childNodes) {
      if (child instanceof HTMLElement) add(child, inside);
      else if (child instanceof Text) {
        for (const { text, rect } of wordsOf(child)) {
          const middle = rect.top + rect.height / 2;
          if (middle < inside.top || middle > inside.bottom) continue;
          if (rect.left < inside.left - 1 || rect.left > inside.right) continue;
          const shown = shortened(text, (inside.right + 1 - rect.left) / rect.width);
          if (!shown) continue;
          const { x, y, width, height } = place(rect);
          bottom = Math.max(bottom, y + height);
          painters.push((ctx) => {
            ctx.font = `${style.fontWeight} ${parseFloat(style.fontSize)}px ${style.fontFamily}`;
            ctx.textAlign = "left";
            ctx.textBaseline = "middle";
            ctx.fillStyle = literal(style.color);
            ctx.fillText(shown, x, y + height / 2, width + 1);
          });
        }
      }
    }
  };
  add(element, origin);
  const size = { width: origin.width, height: Math.min(origin.height, Math.ceil(bottom) + MARGIN) };
  const draw = (/** @type {import("./size_cache_and_clip_canvas.js").Drawing} */ { pen }) => {
    for (const paint of painters) paint(pen.ctx);
  };
  return { canvas: element, palette, size, draw };
}

/**
 * Add the background and the borders of an element.
 *
 * @param {Painter[]} painters
 * @param {CSSStyleDeclaration} style
 * @param {{x: number, y: number, width: number, height: number}} box
 * @param {boolean} isVisible
 */
function addBox(painters, style, { x, y, width, height }, isVisible) {
  if (!isVisible && style.overflow === "hidden" && !height) return;
  const fill = literal(style.backgroundColor);
  if (fill) {
    painters.push((ctx) => {
      fillBox(ctx, fill, x, y, width, height);
    });
  }
  for (const side of SIDES) {
    const thick = parseFloat(style[`border${side}Width`]);
    const color = literal(style[`border${side}Color`]);
    if (!thick || !color) continue;
    const isFlat = side === "Top" || side === "Bottom";
    painters.push((ctx) => {
      fillBox(
        ctx,
        color,
        side === "Right" ? x + width - thick : x,
        side === "Bottom" ? y + height - thick : y,
        isFlat ? width : thick,
        isFlat ? thick : height,
      );
    });
  }
}

/**
 * Return the words of a text with their places; a word that is broken into lines has several.
 *
 * @param {Text} node
 * @returns {{text: string, rect: DOMRect}[]}
 */
function wordsOf(node) {
  const range = document.createRange();
  return [...node.data.matchAll(/\S+/g)].flatMap(({ 0: text, index }) => {
    range.setStart(node, index);
    range.setEnd(node, index + text.length);
    const [rect] = range.getClientRects();
    return rect?.width ? [{ text, rect }] : [];
  });
}

/**
 * @param {string} text
 * @param {number} share that is visible
 * @returns {string}
 */
function shortened(text, share) {
  const length = Math.floor(text.length * share) - 1;
  return share >= 1 ? text : length > 0 ? `${text.slice(0, length)}…` : "";
}

/**
 * @param {Area} a
 * @param {Area} b
 * @returns {Area}
 */
function intersection(a, b) {
  return {
    left: Math.max(a.left, b.left),
    top: Math.max(a.top, b.top),
    right: Math.min(a.right, b.right),
    bottom: Math.min(a.bottom, b.bottom),
  };
}

/**
 * Return a picture of a whole SVG element, of rectangles, paths and texts.
 *
 * @param {SVGElement} element
 * @param {import("./theme.js").Palette} palette
 * @returns {Picture}
 */
export function svgPicture(element, palette) {
  const lengthOf = (/** @type {string} */ name) => Number(element.getAttribute(name));
  const size = { width: lengthOf("width"), height: lengthOf("height") };
  const draw = (/** @type {{pen: {ctx: any}}} */ { pen: { ctx } }) => {
    for (const mark of element.querySelectorAll("rect:not(.agv-k-names), path, text")) {
      const style = getComputedStyle(mark);
      const number = (/** @type {string} */ name) => Number(mark.getAttribute(name));
      ctx.globalAlpha = Number(style.opacity);
      const [fill, stroke] = [literal(style.fill), literal(style.stroke)];
      if (mark.localName === "text") {
        ctx.font = `${style.fontWeight} ${parseFloat(style.fontSize)}px ${style.fontFamily}`;
        ctx.textAlign = { middle: "center", end: "right" }[style.textAnchor] ?? "left";
        ctx.textBaseline = "alphabetic";
        ctx.fillStyle = fill;
        ctx.fillText(mark.textContent, number("x"), number("y"));
        continue;
      }
      const shape = mark.getAttribute("d") ?? "";
      const path = shape ? Object.assign(new Path2D(shape), { shape }) : undefined;
      ctx.beginPath();
      if (!path) {
        const size = [number("width"), number("height")];
        ctx.roundRect(number("x"), number("y"), ...size, number("rx"));
      }
      ctx.setLineDash((style.strokeDasharray.match(/[\d.]+/g) ?? []).map(Number));
      ctx.lineWidth = parseFloat(style.strokeWidth);
      ctx.fillStyle = fill;
      ctx.strokeStyle = stroke;
      if (fill) path ? ctx.fill(path) : ctx.fill();
      if (stroke) path ? ctx.stroke(path) : ctx.stroke();
    }
    ctx.globalAlpha = 1;
  };
  const canvas = /** @type {HTMLElement} */ (element.parentElement);
  return { canvas, palette, size, draw };
}

/**
 * Return a computed color as "#rrggbbaa", "" if it is transparent.
 *
 * @param {string} color
 * @returns {string}
 */
function literal(color) {
  if (color === "none") return "";
  const isShare = color.startsWith("color");
  const [r, g, b, alpha = 1] = (color.match(/-?[\d.]+(e-?\d+)?/g) ?? []).map(Number);
  if (b === undefined || !alpha) return "";
  const parts = [...[r, g, b].map((part) => (isShare ? part * 255 : part)), alpha * 255];
  const hex = parts.map((part) =>
    Math.max(0, Math.min(255, Math.round(part)))
      .toString(16)
      .padStart(2, "0"),
  );
  return `#${hex.join("")}`;
}
