// @ts-check
/** Rows that read the columns of a payload lazily. */

/** @typedef {{distinct: (name: string) => Set<any>, column: (name: string) => ArrayLike<any>}} Columns */

/** @type {WeakMap<any[], Columns>} those of the rows of each table */
const columnsOf = new WeakMap();

/**
 * Return the values that occur in a column, without reading it from each row.
 *
 * @param {any[]} rows
 * @param {string} name
 * @returns {Set<any>}
 */
export const distinct = (rows, name) =>
  columnsOf.get(rows)?.distinct(name) ?? new Set(rows.map((row) => row[name]));

/**
 * Return the numbers of a column, without reading it from each row.
 *
 * @param {any[]} rows
 * @param {string} name
 * @returns {ArrayLike<number>}
 */
export const columnOf = (rows, name) =>
  columnsOf.get(rows)?.column(name) ?? rows.map((row) => row[name]);

/**
 * Return the rows of a table. A row holds only its index and reads the columns on access: creating
 * 100,000 objects of 25 fields each would take most of a second.
 *
 * @param {Record<string, any[] | string>} columns those of a packed payload are text, which is
 *   parsed when a row reads it
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
  /** @type {Record<string, () => any>} */
  const valuesOf = {};
  for (const [name, column] of Object.entries(columns)) {
    const packed = typeof column === "string" ? column[0] : "";
    // All rows share a value that all have; a list cannot be changed then.
    const only =
      packed === "c" ? Object.freeze(JSON.parse(/** @type {string} */ (column).slice(1))[0]) : null;
    /** @type {any} */
    let values = column;
    valuesOf[name] = () => {
      if (packed === "c") return [only];
      return typeof values === "string" ? (values = unpackColumn(values)) : values;
    };
    const read = (/** @type {number} */ at) => {
      if (packed === "c") return only;
      if (typeof values === "string") values = unpackColumn(values);
      if (packed === "r" && typeof values[at] === "string") values[at] = JSON.parse(values[at]);
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
  const all = Object.values(columns);
  const column = all.find((each) => each[0] === "c") ?? all[0] ?? [];
  const count = lengthOf(column);
  const rows = new Array(count);
  for (let at = 0; at < count; at++) rows[at] = new Row(at);
  columnsOf.set(rows, {
    distinct: (name) => {
      const found = new Set(count ? valuesOf[name]() : []);
      return textColumns.includes(name)
        ? new Set([...found].map((value) => strings[value]))
        : found;
    },
    column: (name) => {
      const values = valuesOf[name]();
      return values.length < count ? new Array(count).fill(values[0]) : values;
    },
  });
  return rows;
}

/**
 * @param {any[] | string} column
 * @returns {number}
 */
function lengthOf(column) {
  if (typeof column !== "string") return column.length;
  return column[0] === "c" ? JSON.parse(column.slice(1))[1] : unpackColumn(column).length;
}

/**
 * Return the values of a packed column; `autogradviz/scene/payload.py` describes its text.
 *
 * @param {string} text
 * @returns {any[]}
 */
export function unpackColumn(text) {
  if (text[0] === "[" || text[0] === "{") return withRuns(JSON.parse(text));
  if (text[0] === "r") return text.slice(1).split(";");
  const content = JSON.parse(text.slice(1));
  if (text[0] === "c") {
    const [value, count] = content;
    return Array.isArray(value)
      ? Array.from({ length: count }, () => [...value])
      : new Array(count).fill(value);
  }
  if (text[0] === "d") return sumDifferences(withRuns(content));
  const [lengths, differences] = content.map(withRuns);
  const numbers = sumDifferences(differences);
  let start = 0;
  return lengths.map((/** @type {number} */ length) => numbers.slice(start, (start += length)));
}

/**
 * @param {any[] | {runs: any[]}} content
 * @returns {any[]} the values, of which runs may be stored once
 */
function withRuns(content) {
  if (Array.isArray(content)) return content;
  const { runs } = content;
  const values = [];
  for (let at = 0; at < runs.length; at += 2) {
    for (let left = runs[at + 1]; left > 0; left--) values.push(runs[at]);
  }
  return values;
}

/**
 * Replace differences between successive numbers by the numbers.
 *
 * @param {number[]} differences
 * @returns {number[]}
 */
function sumDifferences(differences) {
  for (let at = 1; at < differences.length; at++) differences[at] += differences[at - 1];
  return differences;
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
