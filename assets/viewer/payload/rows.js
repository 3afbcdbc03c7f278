// @ts-check
/** Rows that read the columns of a payload lazily. */

/**
 * Return the rows of a table. A row holds only its index and reads the columns on access: creating
 * 100,000 objects of 25 fields each would take most of a second.
 *
 * @param {Record<string, any[] | string>} columns those of a packed payload are text, which is parsed
 *   when a row reads it
 * @param {string[]} textColumns those that hold indices into `strings`
 * @param {string[]} strings
 * @returns {any[]}
 */
export function makeRows(columns, textColumns, strings) {
  class Row {
    /** @param {number} at */
    constructor(at) {
      this.at = at;
    }
  }
  for (const [name, column] of Object.entries(columns)) {
    /** @type {any} */
    let values = column;
    const read = (/** @type {number} */ at) => {
      if (typeof values === "string") values = parseColumn(values);
      return values[at];
    };
    /** @this {Row} */
    function text() {
      const value = read(this.at);
      return typeof value === "number" ? strings[value] : value;
    }
    /** @this {Row} */
    function plain() {
      return read(this.at);
    }
    Object.defineProperty(Row.prototype, name, { get: textColumns.includes(name) ? text : plain });
  }
  const [first = []] = Object.values(columns);
  const { length } = typeof first === "string" ? parseColumn(first) : first;
  return Array.from({ length }, (_, at) => new Row(at));
}

/**
 * @param {string} text of a column; `autogradviz/scene/payload.py` describes it
 * @returns {any[]} its values
 */
function parseColumn(text) {
  const isEqual = text[0] === "=";
  const isDifferences = text[0] === "~";
  const values = JSON.parse(isEqual || isDifferences ? text.slice(1) : text);
  if (isEqual) return Array(values[1]).fill(values[0]);
  if (isDifferences) for (let at = 1; at < values.length; at++) values[at] += values[at - 1];
  return values;
}

/**
 * Define a property whose value is computed when it is read for the first time.
 *
 * @param {any} object
 * @param {string} name
 * @param {() => any} compute
 */
export function defineLazy(object, name, compute) {
  Object.defineProperty(object, name, {
    configurable: true,
    get: () => {
      const value = compute();
      Object.defineProperty(object, name, { value });
      return value;
    },
  });
}

/**
 * Return a copy of a row with some fields changed.
 *
 * @template {object} Row
 * @param {Row} row
 * @param {Partial<Row>} fields
 * @returns {Row}
 */
export function rowWith(row, fields) {
  const own = Object.entries(fields).map(([name, value]) => [name, { value }]);
  return Object.create(row, Object.fromEntries(own));
}
