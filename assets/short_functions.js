// @ts-check
/** Frequent functions and methods under names that are short in the bundle, see build.mjs. */

import { h } from "./viewer/dom.js";

export const {
  max: mathMax,
  min: mathMin,
  round: mathRound,
  floor: mathFloor,
  ceil: mathCeil,
  abs: mathAbs,
} = Math;
export const { entries: objectEntries, assign: objectAssign } = Object;
const { from } = Array;
export const arrayFrom = from.bind(Array);

/** @typedef {(...rest: any[]) => HTMLElement} MakeElement */

export const divElement = /** @type {MakeElement} */ ((...rest) => h("div", ...rest));
export const spanElement = /** @type {MakeElement} */ ((...rest) => h("span", ...rest));
export const pElement = /** @type {MakeElement} */ ((...rest) => h("p", ...rest));
export const tdElement = /** @type {MakeElement} */ ((...rest) => h("td", ...rest));
export const codeElement = /** @type {MakeElement} */ ((...rest) => h("code", ...rest));
export const h3Element = /** @type {MakeElement} */ ((...rest) => h("h3", ...rest));

/** @type {(element: Element, ...children: (Node | string)[]) => void} */
export const replaceChildrenOf = (element, ...children) => element.replaceChildren(...children);

/** @type {(element: Element, name: string, value: string) => void} */
export const setAttributeOf = (element, name, value) => element.setAttribute(name, value);

/** @type {(element: Element, name: string, on?: boolean) => boolean} */
export const toggleClassOf = (element, name, on) => element.classList.toggle(name, on);

/** @type {(element: Element) => DOMRect} */
export const getBoundingClientRectOf = (element) => element.getBoundingClientRect();

/** @type {(callback: FrameRequestCallback) => number} */
export const nextFrame = (callback) => globalThis.requestAnimationFrame(callback);

/** @type {() => number} */
export const pixelRatio = () => devicePixelRatio || 1;

/** @typedef {CanvasRenderingContext2D} Context */

/** @type {(ctx: Context, color: string, x: number, y: number, w: number, h: number) => void} */
export const fillRectOf = (ctx, color, ...box) => {
  ctx.fillStyle = color;
  ctx.fillRect(...box);
};

/** @type {(ctx: Context, color: string, width: number) => void} */
export const setStroke = (ctx, color, width) => {
  ctx.strokeStyle = color;
  ctx.lineWidth = width;
};

/** @type {(ctx: Context, x: number, y: number, toX: number, toY: number) => void} */
export const strokeLine = (ctx, x, y, toX, toY) => {
  ctx.beginPath();
  ctx.moveTo(x, y);
  ctx.lineTo(toX, toY);
  ctx.stroke();
};

/** @type {(parts: unknown[]) => string} */
export const joinParts = (parts) => parts.filter(Boolean).join(" · ");
