// @ts-check
/** The shape of the ribbons of the fold: an edge above, a waist, an edge below. */

/** @typedef {import("../../types.js").SceneRibbon} Ribbon */
/** @typedef {{left: number, right: number, top: number, bottom: number}} Area */

const SCALE = 100_000;
/** Shares of the height at which the waist begins and ends, and at which backward begins. */
const WAIST = [0.3, 0.7];
const TURN = 0.5;
/** Shares of the height at which ribbons end that no backward read. */
const ENDS = { kept: 1, waiting: 0.84, unread: 0.78, broken: 1, read: 1 };

/**
 * @param {Area} area
 * @param {number} position from 0 to 100,000
 * @returns {number}
 */
export const xAt = ({ left, right }, position) => left + ((right - left) * position) / SCALE;

/**
 * Return the height of a share of the way from the save to the read.
 *
 * @param {Area} area
 * @param {number} share
 * @returns {number}
 */
const yAt = ({ top, bottom }, share) => top + (bottom - top) * share;

/**
 * @param {Area} area
 * @param {Ribbon} ribbon
 * @returns {number} y of its lower end
 */
export const endOf = (area, ribbon) => yAt(area, ribbon.bottom.length ? 1 : ENDS[ribbon.state]);

/**
 * @param {Area} area
 * @param {Ribbon} ribbon
 * @returns {number} y from which it is filled: a recomputed one begins in backward
 */
export const startOf = (area, ribbon) => yAt(area, ribbon.recomputed ? TURN : 0);

/**
 * @param {Area} area
 * @param {Ribbon} ribbon
 * @returns {number} y of the write that made it stale
 */
export const writtenAt = (area, ribbon) =>
  area.top + ((endOf(area, ribbon) - area.top) * ribbon.written) / SCALE;

/**
 * Trace the outline of a ribbon as the current path.
 *
 * @param {CanvasRenderingContext2D} ctx
 * @param {Area} area
 * @param {Ribbon} ribbon
 */
export function traceRibbon(ctx, area, ribbon) {
  const { top, waist, bottom } = ribbon;
  const x = (/** @type {number} */ position) => xAt(area, position);
  const [first, last] = WAIST.map((share) => yAt(area, share));
  const end = endOf(area, ribbon);
  const upper = (area.top + first) / 2;
  const lower = (last + area.bottom) / 2;
  ctx.beginPath();
  ctx.moveTo(x(top[0]), area.top);
  ctx.lineTo(x(top[1]), area.top);
  ctx.bezierCurveTo(x(top[1]), upper, x(waist[1]), upper, x(waist[1]), first);
  if (bottom.length) {
    ctx.lineTo(x(waist[1]), last);
    ctx.bezierCurveTo(x(waist[1]), lower, x(bottom[1]), lower, x(bottom[1]), area.bottom);
    ctx.lineTo(x(bottom[0]), area.bottom);
    ctx.bezierCurveTo(x(bottom[0]), lower, x(waist[0]), lower, x(waist[0]), last);
  } else {
    ctx.lineTo(x(waist[1]), end);
    ctx.lineTo(x(waist[0]), end);
  }
  ctx.lineTo(x(waist[0]), first);
  ctx.bezierCurveTo(x(waist[0]), upper, x(top[0]), upper, x(top[0]), area.top);
  ctx.closePath();
}

/**
 * Return the left and the right end of a ribbon at a height.
 *
 * @param {Area} area
 * @param {Ribbon} ribbon
 * @param {number} y
 * @returns {[number, number] | null} null above or below it
 */
export function extentAt(area, ribbon, y) {
  if (y < area.top || y > endOf(area, ribbon)) return null;
  const [first, last] = WAIST.map((share) => yAt(area, share));
  const { top, waist, bottom } = ribbon;
  const sides = /** @type {const} */ ([0, 1]);
  const between = (
    /** @type {number[]} */ from,
    /** @type {number[]} */ to,
    /** @type {number} */ share,
  ) => {
    const bend = curveAt(share);
    return /** @type {[number, number]} */ (
      sides.map((side) => xAt(area, from[side] + (to[side] - from[side]) * bend))
    );
  };
  if (y < first) return between(top, waist, (y - area.top) / (first - area.top));
  if (y <= last || !bottom.length) return between(waist, waist, 0);
  return between(waist, bottom, (y - last) / (area.bottom - last));
}

/**
 * Return the shift of the curve of an edge at a share of its height. Its control points are
 * halfway down, above its start and below its end.
 *
 * @param {number} share
 * @returns {number}
 */
function curveAt(share) {
  let [low, high] = [0, 1];
  for (let round = 0; round < 20; round++) {
    const t = (low + high) / 2;
    const y = 1.5 * t * (1 - t) + t * t * t;
    if (y < share) low = t;
    else high = t;
  }
  return low * low * (3 - 2 * low);
}

/**
 * Return the shortest name of each block that no block of another module has: "net.0" may be of the
 * generator or of the critic, so "critic.net.0" has none.
 *
 * @param {string[]} blocks
 * @returns {(block: string) => string}
 */
export function shortNames(blocks) {
  const like = (/** @type {string} */ name) => `.${name.replace(/\d+/g, "*")}`;
  const all = new Set(blocks.map(like));
  return (block) => {
    const parts = block.split(".");
    const forms = parts.map((_, at) => parts.slice(at).join(".")).reverse();
    const isClear = (/** @type {string} */ name) =>
      /^\D/.test(name) &&
      ![...all].some((each) => each !== like(block) && each.endsWith(like(name)));
    return forms.find(isClear) ?? block;
  };
}
