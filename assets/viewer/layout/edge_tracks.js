// @ts-check
/**
 * Tracks: the heights of the horizontal segments of lines between two rows.
 *
 * `autogradviz/scene/layout/edge_tracks.py` does the same arithmetic in the same order.
 */

const TRACK_PITCH = 8;
const TRACKS_HEIGHT = 96;
const CLEARANCE = 8;

/** @typedef {[upper: number, lower: number, link: number, step: number]} Step */

/**
 * Return the track of each step, 0 at the top, and the distance between two tracks.
 *
 * @param {Step[]} steps
 * @returns {{tracks: number[], pitch: number}}
 */
export function assignTracks(steps) {
  const tracks = steps.map(() => 0);
  /** @type {number[]} */
  const toRight = [];
  /** @type {number[]} */
  const toLeft = [];
  steps.forEach(([upper, lower], i) => (upper > lower ? toRight : toLeft).push(i));
  let [top, bottom, sign] = [toRight, toLeft, 1];
  if (clashes(steps, toLeft, toRight) > clashes(steps, toRight, toLeft))
    [top, bottom, sign] = [toLeft, toRight, -1];
  let count = stack(steps, top, sign, 0, tracks);
  const first = apart(steps, toRight, toLeft) ? 0 : count;
  count = Math.max(count, stack(steps, bottom, -sign, first, tracks));
  const pitch = count < 2 ? TRACK_PITCH : Math.min(TRACK_PITCH, TRACKS_HEIGHT / (count - 1));
  return { tracks, pitch };
}

/**
 * Return the number of steps of `upper` whose lower end has the x of an upper end in `lower`.
 *
 * @param {Step[]} steps
 * @param {number[]} lower
 * @param {number[]} upper
 * @returns {number}
 */
function clashes(steps, lower, upper) {
  const upperEnds = new Set(lower.map((i) => Math.floor(steps[i][0] + 0.5)));
  return upper.filter((i) => upperEnds.has(Math.floor(steps[i][1] + 0.5))).length;
}

/**
 * Assign tracks from `first` on to the chosen steps; return the first free track.
 *
 * @param {Step[]} steps
 * @param {number[]} chosen
 * @param {number} sign
 * @param {number} first
 * @param {number[]} tracks
 * @returns {number}
 */
function stack(steps, chosen, sign, first, tracks) {
  /** @type {number[]} */
  const ends = [];
  const order = [...chosen].sort(
    (a, b) => sign * (steps[a][1] - steps[b][1]) || sign * (steps[a][0] - steps[b][0]) || a - b,
  );
  for (const i of order) {
    const begin = sign * steps[i][1];
    const end = sign * steps[i][0];
    let track = ends.length;
    while (track > 0 && ends[track - 1] + CLEARANCE <= begin) track -= 1;
    ends[track] = track === ends.length ? end : Math.max(ends[track], end);
    tracks[i] = first + track;
  }
  return first + ends.length;
}

/**
 * Return whether all steps of one set lie on one side of the other set.
 *
 * @param {Step[]} steps
 * @param {number[]} some
 * @param {number[]} others
 * @returns {boolean}
 */
function apart(steps, some, others) {
  if (!some.length || !others.length) return true;
  const low = Math.min(...some.map((i) => steps[i][1]));
  const high = Math.max(...some.map((i) => steps[i][0]));
  return (
    Math.max(...others.map((i) => steps[i][1])) + CLEARANCE <= low ||
    high + CLEARANCE <= Math.min(...others.map((i) => steps[i][0]))
  );
}
