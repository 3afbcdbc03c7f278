// @ts-check
/** Camera arithmetic: `screen = (world - corner) * scale`. */

/** @typedef {{x: number, y: number, scale: number}} Camera `x` and `y` of the view's corner */
/** @typedef {{x: number, y: number, w: number, h: number}} Rect */

const MIN_SCALE = 0.01;
const MAX_SCALE = 3;
/** A graph that is smaller than the view is not enlarged more. */
const MAX_FIT = 1.25;
const MARGIN = 24;

/**
 * Return a camera that shows an entire rectangle.
 *
 * @param {Rect} rect
 * @param {number} width of the view
 * @param {number} height
 * @returns {Camera}
 */
export function fitTo(rect, width, height) {
  const room = Math.min(
    (width - Math.min(2 * MARGIN, width / 20)) / rect.w,
    (height - Math.min(2 * MARGIN, height / 15)) / rect.h,
  );
  return centered(rect, width, height, clamp(room, MIN_SCALE, MAX_FIT));
}

/**
 * Return a camera with a rectangle at the center of the view.
 *
 * @param {Rect} rect
 * @param {number} width
 * @param {number} height
 * @param {number} scale
 * @returns {Camera}
 */
export function centered(rect, width, height, scale) {
  return {
    x: rect.x + rect.w / 2 - width / scale / 2,
    y: rect.y + rect.h / 2 - height / scale / 2,
    scale,
  };
}

/**
 * Limit a camera to a rectangle: no space outside of it is in view while part of it is not.
 *
 * @param {Rect} rect
 * @param {Camera} camera
 * @param {number} width of the view
 * @param {number} height
 * @returns {Camera}
 */
export function clampTo(rect, { x, y, scale }, width, height) {
  const margin = MARGIN / scale;
  const clampAxis = (
    /** @type {number} */ at,
    /** @type {number} */ from,
    /** @type {number} */ room,
  ) => (room < 0 ? at : clamp(at, from, from + room));
  return {
    x: clampAxis(x, rect.x - margin, rect.w + 2 * margin - width / scale),
    y: clampAxis(y, rect.y - margin, rect.h + 2 * margin - height / scale),
    scale,
  };
}

/**
 * Zoom with a fixed point under the pointer.
 *
 * @param {Camera} camera
 * @param {number} factor
 * @param {number} x of the pointer, in screen units
 * @param {number} y
 * @returns {Camera}
 */
export function zoomAt(camera, factor, x, y) {
  const scale = clamp(camera.scale * factor, MIN_SCALE, MAX_SCALE);
  return {
    x: camera.x + x / camera.scale - x / scale,
    y: camera.y + y / camera.scale - y / scale,
    scale,
  };
}

/**
 * Move a camera as little as possible so that a rectangle is in view.
 *
 * @param {Camera} camera
 * @param {Rect} rect
 * @param {number} width
 * @param {number} height
 * @returns {Camera}
 */
export function moveInto(camera, rect, width, height) {
  const along = (/** @type {number} */ corner, /** @type {number} */ at, size = 0, view = 0) => {
    const margin = Math.min(MARGIN / camera.scale, view / 8);
    if (size > view - 2 * margin) return at - margin;
    return clamp(corner, at + size + margin - view, at - margin);
  };
  return {
    x: along(camera.x, rect.x, rect.w, width / camera.scale),
    y: along(camera.y, rect.y, rect.h, height / camera.scale),
    scale: camera.scale,
  };
}

/**
 * @param {number} value
 * @param {number} low
 * @param {number} high
 * @returns {number}
 */
export function clamp(value, low, high) {
  return Math.max(low, Math.min(high, value));
}
