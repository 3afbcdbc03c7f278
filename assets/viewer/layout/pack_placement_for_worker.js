// @ts-check
/** Packs a placement into typed arrays, which move between threads without being copied. */

/** @typedef {import("./coordinates.js").Placement} Placement */
/** @typedef {import("./coordinates.js").Line} Line */
/** @typedef {import("./coordinates.js").Point} Point */

const KINDS = /** @type {const} */ (["node", "group", "frame"]);
const [ARROW, STUB, LABEL] = [1, 2, 4];

/**
 * @typedef {object} Packed
 * @property {[width: number, height: number]} size
 * @property {Int32Array} boxes kind and ref of each
 * @property {Float64Array} corners x, y, width and height of each
 * @property {Int32Array} lines group, link, flags and first point of each; then the number of points
 * @property {Float64Array} points x and y of each
 * @property {Float64Array} labels x and y of each line's
 */

/**
 * @param {Placement} placement
 * @returns {Packed}
 */
export function packPlacement({ width, height, boxes, lines }) {
  const count = lines.reduce((sum, line) => sum + line.points.length, 0);
  const packed = {
    size: /** @type {[number, number]} */ ([width, height]),
    boxes: new Int32Array(2 * boxes.length),
    corners: new Float64Array(4 * boxes.length),
    lines: new Int32Array(4 * lines.length + 1),
    points: new Float64Array(2 * count),
    labels: new Float64Array(2 * lines.length),
  };
  boxes.forEach((box, at) => {
    packed.boxes.set([KINDS.indexOf(box.kind), box.ref], 2 * at);
    packed.corners.set([box.x, box.y, box.width, box.height], 4 * at);
  });
  let first = 0;
  lines.forEach(({ group, link, arrow, stub, label, points }, at) => {
    const flags = (arrow ? ARROW : 0) | (stub ? STUB : 0) | (label ? LABEL : 0);
    packed.lines.set([group, link, flags, first], 4 * at);
    if (label) packed.labels.set(label, 2 * at);
    for (const point of points) packed.points.set(point, 2 * first++);
  });
  packed.lines[4 * lines.length] = first;
  return packed;
}

/**
 * @param {Packed} packed
 * @returns {ArrayBufferLike[]} the buffers to transfer
 */
export function transferList({ boxes, corners, lines, points, labels }) {
  return [boxes, corners, lines, points, labels].map((array) => array.buffer);
}

/**
 * @param {Packed} packed
 * @returns {Placement}
 */
export function unpackPlacement(packed) {
  const { boxes, corners, lines } = packed;
  return {
    width: packed.size[0],
    height: packed.size[1],
    boxes: Array.from({ length: boxes.length / 2 }, (_, at) => ({
      kind: KINDS[boxes[2 * at]],
      ref: boxes[2 * at + 1],
      x: corners[4 * at],
      y: corners[4 * at + 1],
      width: corners[4 * at + 2],
      height: corners[4 * at + 3],
    })),
    lines: Array.from({ length: (lines.length - 1) / 4 }, (_, at) => new PackedLine(packed, at)),
  };
}

/**
 * A line that computes its points on access; most lines are never drawn.
 *
 * @implements {Line}
 */
class PackedLine {
  /**
   * @param {Packed} packed
   * @param {number} at
   */
  constructor(packed, at) {
    const flags = packed.lines[4 * at + 2];
    this.packed = packed;
    this.at = at;
    this.group = packed.lines[4 * at];
    this.link = packed.lines[4 * at + 1];
    this.arrow = !!(flags & ARROW);
    this.stub = !!(flags & STUB);
    this.start = packed.points[2 * this.#first + 1];
    this.end = packed.points[2 * this.#afterLast - 1];
  }

  get #first() {
    return this.packed.lines[4 * this.at + 3];
  }

  get #afterLast() {
    return this.packed.lines[Math.min(4 * this.at + 7, this.packed.lines.length - 1)];
  }

  /** @returns {Point[]} */
  get points() {
    const { points } = this.packed;
    const first = this.#first;
    return Array.from({ length: this.#afterLast - first }, (_, i) => [
      points[2 * (first + i)],
      points[2 * (first + i) + 1],
    ]);
  }

  /** @returns {Point | null} */
  get label() {
    const { lines, labels } = this.packed;
    if (!(lines[4 * this.at + 2] & LABEL)) return null;
    return [labels[2 * this.at], labels[2 * this.at + 1]];
  }
}
