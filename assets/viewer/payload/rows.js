// @ts-check
/** Rows that read the columns of a payload lazily. */

/**
 * Return the rows of a table. A row holds only its index and reads the columns on access: creating
 * 100,000 objects of 25 fields each would take most of a second.
 *
 * @param {Record<string, any[]>} columns
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
  for (const [name, values] of Object.entries(columns)) {
    /** @this {Row} */
    function text() {
      const value = values[this.at];
      return typeof value === "number" ? strings[value] : value;
    }
    /** @this {Row} */
    function plain() {
      return values[this.at];
    }
    Object.defineProperty(Row.prototype, name, { get: textColumns.includes(name) ? text : plain });
  }
  const count = Object.values(columns)[0]?.length ?? 0;
  return Array.from({ length: count }, (_, at) => new Row(at));
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
