// @ts-check
/** A canvas context that writes SVG. */

import { escapeXml, round } from "./svg_numbers_and_text.js";

const STATE = /** @type {const} */ ([
  "fillStyle",
  "strokeStyle",
  "lineWidth",
  "globalAlpha",
  "font",
  "textAlign",
  "textBaseline",
  "lineCap",
  "lineJoin",
]);

export class SvgContext {
  /** @param {CanvasRenderingContext2D} measuring a context that measures text */
  constructor(measuring) {
    this.measuring = measuring;
    this.fillStyle = "#000000";
    this.strokeStyle = "#000000";
    this.lineWidth = 1;
    this.globalAlpha = 1;
    this.font = "10px sans-serif";
    this.textAlign = "left";
    this.textBaseline = "alphabetic";
    this.lineCap = "butt";
    this.lineJoin = "miter";
    /** @type {number[]} */
    this.dashes = [];
    /** @type {string[]} */
    this.parts = [];
    this.shape = "";
    this.x = 0;
    this.y = 0;
    this.scaleX = 1;
    this.moveX = 0;
    this.moveY = 0;
    /** @type {any[]} */
    this.saved = [];
    this.clips = 0;
    this.clipId = "";
  }

  save() {
    /** @type {any} */
    const state = { dashes: this.dashes, clipId: this.clipId };
    for (const name of [...STATE, "scaleX", "moveX", "moveY"]) {
      state[name] = /** @type {any} */ (this)[name];
    }
    this.saved.push(state);
  }

  restore() {
    Object.assign(this, this.saved.pop());
  }

  /**
   * @param {number} x
   * @param {number} y
   */
  translate(x, y) {
    this.moveX += x * this.scaleX;
    this.moveY += y * this.scaleX;
  }

  /** @param {number} factor of both axes; the viewer never scales them differently */
  scale(factor) {
    this.scaleX *= factor;
  }

  /** @param {number[]} dashes */
  setLineDash(dashes) {
    this.dashes = dashes;
  }

  beginPath() {
    this.shape = "";
  }

  closePath() {
    this.shape += "Z";
  }

  /**
   * @param {number} x
   * @param {number} y
   */
  moveTo(x, y) {
    this.shape += `M${this.#at(x, y)}`;
    [this.x, this.y] = [x, y];
  }

  /**
   * @param {number} x
   * @param {number} y
   */
  lineTo(x, y) {
    this.shape += `${this.shape ? "L" : "M"}${this.#at(x, y)}`;
    [this.x, this.y] = [x, y];
  }

  /**
   * @param {number} ax
   * @param {number} ay
   * @param {number} bx
   * @param {number} by
   * @param {number} x
   * @param {number} y
   */
  bezierCurveTo(ax, ay, bx, by, x, y) {
    this.shape += `C${this.#at(ax, ay)} ${this.#at(bx, by)} ${this.#at(x, y)}`;
    [this.x, this.y] = [x, y];
  }

  /**
   * @param {number} cx
   * @param {number} cy
   * @param {number} x
   * @param {number} y
   */
  quadraticCurveTo(cx, cy, x, y) {
    this.shape += `Q${this.#at(cx, cy)} ${this.#at(x, y)}`;
    [this.x, this.y] = [x, y];
  }

  /**
   * Round a corner between two lines at a right angle.
   *
   * @param {number} cx
   * @param {number} cy
   * @param {number} x
   * @param {number} y
   * @param {number} radius
   */
  arcTo(cx, cy, x, y, radius) {
    const before = Math.hypot(cx - this.x, cy - this.y) || 1;
    const after = Math.hypot(x - cx, y - cy) || 1;
    this.lineTo(cx + ((this.x - cx) * radius) / before, cy + ((this.y - cy) * radius) / before);
    const end = [cx + ((x - cx) * radius) / after, cy + ((y - cy) * radius) / after];
    this.quadraticCurveTo(cx, cy, end[0], end[1]);
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} radius
   */
  arc(x, y, radius) {
    const r = round(radius * this.scaleX);
    this.shape += `M${this.#at(x - radius, y)}a${r} ${r} 0 1 0 ${round(2 * radius * this.scaleX)} 0`;
    this.shape += `a${r} ${r} 0 1 0 ${round(-2 * radius * this.scaleX)} 0Z`;
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   */
  rect(x, y, width, height) {
    this.shape += `M${this.#at(x, y)}h${round(width * this.scaleX)}v${round(height * this.scaleX)}`;
    this.shape += `h${round(-width * this.scaleX)}Z`;
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   * @param {number | number[]} radii
   */
  roundRect(x, y, width, height, radii) {
    const maxRadius = Math.min(width, height) / 2;
    const each = Array.isArray(radii) ? radii : [radii, radii, radii, radii];
    const [tl, tr, br, bl] = each.map((radius) => Math.max(0, Math.min(radius, maxRadius)));
    this.moveTo(x + tl, y);
    this.lineTo(x + width - tr, y);
    if (tr) this.quadraticCurveTo(x + width, y, x + width, y + tr);
    this.lineTo(x + width, y + height - br);
    if (br) this.quadraticCurveTo(x + width, y + height, x + width - br, y + height);
    this.lineTo(x + bl, y + height);
    if (bl) this.quadraticCurveTo(x, y + height, x, y + height - bl);
    this.lineTo(x, y + tl);
    if (tl) this.quadraticCurveTo(x, y, x + tl, y);
    this.closePath();
  }

  clip() {
    this.clipId = `clip${++this.clips}`;
    this.parts.push(`<clipPath id="${this.clipId}"><path d="${this.shape}"/></clipPath>`);
  }

  /** @param {Path2D & {shape?: string}} [path] of a glyph */
  fill(path) {
    this.#addPath(path, `fill="${escapeXml(this.fillStyle)}"`);
  }

  /** @param {Path2D & {shape?: string}} [path] */
  stroke(path) {
    const width = path ? this.lineWidth : this.lineWidth * this.scaleX;
    let style = `fill="none" stroke="${escapeXml(this.strokeStyle)}" stroke-width="${round(width)}"`;
    if (this.lineCap !== "butt") style += ` stroke-linecap="${this.lineCap}"`;
    if (this.lineJoin !== "miter") style += ` stroke-linejoin="${this.lineJoin}"`;
    if (this.dashes.length) {
      const scale = path ? 1 : this.scaleX;
      style += ` stroke-dasharray="${this.dashes.map((each) => round(each * scale))}"`;
    }
    this.#addPath(path, style);
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   */
  fillRect(x, y, width, height) {
    this.beginPath();
    this.rect(x, y, width, height);
    this.fill();
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   */
  strokeRect(x, y, width, height) {
    this.beginPath();
    this.rect(x, y, width, height);
    this.stroke();
  }

  /**
   * @param {HTMLCanvasElement} image
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   */
  drawImage(image, x, y, width, height) {
    const [px, py] = this.#at(x, y).split(" ");
    const size = [width, height].map((length) => round(length * this.scaleX));
    const place = `x="${px}" y="${py}" width="${size[0]}" height="${size[1]}"`;
    if (image.width && image.height)
      this.parts.push(`<image ${place} href="${escapeXml(image.toDataURL())}"/>`);
  }

  /**
   * @param {string} text
   * @returns {TextMetrics}
   */
  measureText(text) {
    this.measuring.font = this.font;
    return this.measuring.measureText(text);
  }

  /**
   * @param {string} text
   * @param {number} x
   * @param {number} y
   * @param {number} [room] wider text is condensed
   */
  fillText(text, x, y, room) {
    const condensed = room !== undefined && this.measureText(text).width > room;
    const [, weight, size, family] = /^(?:(\d+) )?([\d.]+)px (.*)$/.exec(this.font) ?? [];
    const anchor = { center: "middle", right: "end" }[this.textAlign];
    const [px, py] = this.#at(x, y).split(" ");
    const baseline = this.textBaseline === "middle" ? Number(size) * 0.35 * this.scaleX : 0;
    this.parts.push(
      `<text x="${px}" y="${round(Number(py) + baseline)}" fill="${escapeXml(this.fillStyle)}"` +
        ` font-size="${round(Number(size) * this.scaleX)}" font-family="${escapeXml(family)}"` +
        (weight && weight !== "400" ? ` font-weight="${weight}"` : "") +
        (anchor ? ` text-anchor="${anchor}"` : "") +
        (condensed
          ? ` textLength="${round(room * this.scaleX)}" lengthAdjust="spacingAndGlyphs"`
          : "") +
        `${this.#commonAttributes()} xml:space="preserve">${escapeXml(text)}</text>`,
    );
  }

  /**
   * @param {(Path2D & {shape?: string}) | undefined} path
   * @param {string} style
   */
  #addPath(path, style) {
    if (path) {
      const transform = `translate(${round(this.moveX)} ${round(this.moveY)}) scale(${this.scaleX})`;
      this.parts.push(
        `<path d="${path.shape}" transform="${transform}" ${style}${this.#commonAttributes()}/>`,
      );
    } else if (this.shape) {
      this.parts.push(`<path d="${this.shape}" ${style}${this.#commonAttributes()}/>`);
    }
  }

  /** @returns {string} */
  #commonAttributes() {
    const alpha = this.globalAlpha < 1 ? ` opacity="${round(this.globalAlpha)}"` : "";
    return this.clipId ? `${alpha} clip-path="url(#${this.clipId})"` : alpha;
  }

  /**
   * @param {number} x
   * @param {number} y
   * @returns {string}
   */
  #at(x, y) {
    return `${round(x * this.scaleX + this.moveX)} ${round(y * this.scaleX + this.moveY)}`;
  }

  /**
   * Return the SVG document.
   *
   * @param {number} width
   * @param {number} height
   * @returns {string}
   */
  text(width, height) {
    return (
      `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}"` +
      ` viewBox="0 0 ${width} ${height}">${this.parts.join("")}</svg>`
    );
  }
}
