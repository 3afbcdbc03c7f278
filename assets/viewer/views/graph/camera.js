// @ts-check
/** Where we look: `screen = (world - corner) * scale`. */

/** @typedef {{x: number, y: number, scale: number}} Camera corner of the view, in world units */
/** @typedef {{x: number, y: number, w: number, h: number}} Rect */

const MIN_SCALE = 0.01;
const MAX_SCALE = 3;
const MARGIN = 24;

/**
 * The whole rect in view, never larger than life.
 *
 * @param {Rect} rect
 * @param {number} width of the view
 * @param {number} height
 * @returns {Camera}
 */
export function fitTo(rect, width, height) {
  const room = Math.min((width - 2 * MARGIN) / rect.w, (height - 2 * MARGIN) / rect.h);
  return centred(rect, width, height, clamp(room, MIN_SCALE, 1));
}

/**
 * The rect's middle in the middle of the view.
 *
 * @param {Rect} rect
 * @param {number} width
 * @param {number} height
 * @param {number} scale
 * @returns {Camera}
 */
export function centred(rect, width, height, scale) {
  return {
    x: rect.x + rect.w / 2 - width / scale / 2,
    y: rect.y + rect.h / 2 - height / scale / 2,
    scale,
  };
}

/**
 * A camera that shows nothing beside a rect while it could show more of it.
 *
 * @param {Rect} rect
 * @param {Camera} camera
 * @param {number} width of the view
 * @param {number} height
 * @returns {Camera}
 */
export function keptOn(rect, { x, y, scale }, width, height) {
  const margin = MARGIN / scale;
  const kept = (
    /** @type {number} */ at,
    /** @type {number} */ from,
    /** @type {number} */ room,
  ) => (room < 0 ? at : clamp(at, from, from + room));
  return {
    x: kept(x, rect.x - margin, rect.w + 2 * margin - width / scale),
    y: kept(y, rect.y - margin, rect.h + 2 * margin - height / scale),
    scale,
  };
}

/**
 * Zoom, and keep what is under the pointer there.
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
 * The smallest move that brings a rect into view; none where it is in view already.
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
