// @ts-check
/** Rounds numbers and escapes text for SVG. */

/**
 * @param {number} value
 * @returns {number}
 */
export function round(value) {
  return Math.round(value * 100) / 100;
}

/**
 * @param {string} text
 * @returns {string} escaped for attributes and content
 */
export function escapeXml(text) {
  const plain = text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd");
  return plain.replace(
    /[&<>"']/g,
    (each) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" })[each] ?? "",
  );
}
