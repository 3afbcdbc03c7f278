// @ts-check
/** The steps of a recording so far, joined from the changes that Python sends. */

/**
 * @typedef {object} Step
 * @property {number} step from 0
 * @property {boolean} unfinished
 * @property {number} ms
 * @property {(number | null)[]} losses null: NaN or infinite
 * @property {number | null} ops
 * @property {number | null} saved bytes
 * @property {Record<string, number | null>} norms by module
 * @property {boolean} analyzed
 */

/**
 * @typedef {object} Finding
 * @property {string} slug
 * @property {string} title
 * @property {string} line
 * @property {string} text
 * @property {string} fix
 * @property {number} firstStep
 * @property {number} count
 */

/**
 * @typedef {object} Changes
 * @property {string} name of the file, or ""
 * @property {number} generation
 * @property {number} version
 * @property {boolean} exists
 * @property {number} unread bytes
 * @property {string} error
 * @property {boolean} ended
 * @property {string} model
 * @property {string} torch
 * @property {number} startedMs
 * @property {number} unanalyzed
 * @property {number} missing steps
 * @property {string} note
 * @property {string} noLoss
 * @property {string} noNorms
 * @property {Step[]} steps
 * @property {Finding[]} findings
 */

/** The union of all changes that were sent. */
export class State {
  constructor() {
    /** @type {Changes | null} */
    this.newest = null;
    /** @type {Step[]} */
    this.steps = [];
    /** @type {Map<string, Finding>} */
    this.findings = new Map();
    this.arrivedMs = 0;
  }

  /** @param {Changes} changes */
  add(changes) {
    if (this.newest && this.newest.generation !== changes.generation) {
      this.steps = [];
      this.findings.clear();
    }
    if (changes.steps.length || changes.version !== this.newest?.version) {
      this.arrivedMs = Date.now();
    }
    this.newest = changes;
    const places = new Map(this.steps.map((each, place) => [each.step, place]));
    for (const step of changes.steps) {
      const place = places.get(step.step);
      if (place === undefined) this.steps.push(step);
      else this.steps[place] = step;
    }
    this.steps.sort((a, b) => a.step - b.step);
    for (const found of changes.findings) this.findings.set(`${found.slug} ${found.line}`, found);
  }
}
