// @ts-check
/** Numbers and text as SVG has them. */

/**
 * @param {number} value
 * @returns {number}
 */
export function short(value) {
  return Math.round(value * 100) / 100;
}

/**
 * @param {string} text
 * @returns {string} as it may stand in an attribute or between tags
 */
export function escape(text) {
  const plain = text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd");
  return plain.replace(
    /[&<>"']/g,
    (each) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" })[each] ?? "",
  );
}
