// @ts-check
/**
 * The peak of saved memory if modules were checkpointed or offloaded: the same rules as in
 * `autogradviz/analysis/predict_memory.py`, for the selection of the reader.
 */

/**
 * @typedef {object} Prediction
 * @property {number} peak in bytes
 * @property {number} recomputeNs in a step: the median over the recorded steps
 * @property {[number, number]} recomputeRangeNs in the fastest and in the slowest step
 * @property {number} steps that would recompute or copy
 * @property {number} copied bytes in a step
 * @property {Curve} curve over event numbers
 * @property {() => Held} held what is held at the peak
 */

/**
 * @typedef {object} Held
 * @property {Map<number, number>} atPeak bytes by id of the storage, those computed again too
 * @property {Set<number>} again ids of storages that only backward has, computed again
 * @property {Set<number>} inputs ids of storages that are held first as arguments of a checkpoint
 */

/** @typedef {{time_ns: number, nbytes: number}[]} Curve */

/**
 * @param {import("../types.js").Scene} scene
 * @param {Map<string, string>} chosen "checkpoint" or "offload" by module
 * @param {number} [step] whose peak and times are meant, -1 for those of the recording
 * @returns {Prediction}
 */
export function predictMemory(
  { module_calls, held_saves, storage_sizes, steps },
  chosen,
  step = -1,
) {
  // Calls are in the order in which they started: the enclosing one comes first.
  /** @type {number[]} */
  const regions = [];
  module_calls.forEach(({ parent, module }, at) => {
    const around = parent < 0 ? -1 : regions[parent];
    regions.push(around < 0 && chosen.has(module) ? at : around);
  });
  const kindOf = (/** @type {number} */ region) => chosen.get(module_calls[region].module);
  const isInside = (/** @type {number} */ call, /** @type {number} */ region) => {
    for (; call >= 0; call = module_calls[call].parent) if (call === region) return true;
    return false;
  };
  /** @type {Map<number, [start: number, end: number][]>} by storage, and region if recomputed */
  const intervals = new Map();
  const count = storage_sizes.length;
  const hold = (
    /** @type {number} */ key,
    /** @type {number} */ start,
    /** @type {number} */ end,
  ) => {
    if (end >= 0 && end <= start) return;
    const list = intervals.get(key) ?? [];
    intervals.set(key, list);
    list.push([start, end < 0 ? Infinity : end]);
  };
  for (const { storage, call, created_in, start_seq, end_seq, used_seqs } of held_saves) {
    const region = call < 0 ? -1 : regions[call];
    if (region < 0) hold(storage, start_seq, end_seq);
    else if (kindOf(region) === "checkpoint" && isInside(created_in, region)) {
      const { unpacked_seqs: starts } = module_calls[region];
      if (starts.length) {
        for (const end of used_seqs) {
          const start = starts.findLast((each) => end < 0 || each <= end) ?? starts[0];
          hold(storage + count * (region + 1), start, end);
        }
      }
    }
  }
  /** @type {Map<number, number>} when a checkpoint began to hold a storage as an argument */
  const inputs = new Map();
  /** @type {Map<number, number>} by step */
  const recomputeNs = new Map();
  /** @type {Map<number, number>} by step */
  const copied = new Map();
  const add = (
    /** @type {Map<number, number>} */ sums,
    /** @type {number} */ at,
    /** @type {number} */ value,
  ) => value && (step < 0 || step === at) && sums.set(at, (sums.get(at) ?? 0) + value);
  module_calls.forEach((call, at) => {
    const region = regions[at];
    if (region >= 0 && kindOf(region) === "offload") add(copied, call.step, call.copied);
    else if (region === at) {
      add(recomputeNs, call.step, call.recompute_ns);
      for (const storage of call.inputs) {
        hold(storage, call.entered_seq, call.released_seq);
        if (!inputs.has(storage)) inputs.set(storage, call.entered_seq);
      }
    }
  });
  const curve = sumIntervals(intervals, (key) => storage_sizes[key % count].nbytes);
  const durations = sorted(recomputeNs);
  const bytes = median(sorted(copied));
  const begin = steps[step - 1]?.end_seq ?? 0;
  const end = steps[step]?.end_seq ?? -1;
  const highest = { time_ns: 0, nbytes: 0 };
  curve.forEach((point, at) => {
    const next = curve[at + 1]?.time_ns ?? Infinity;
    const inside = next > begin && (end < 0 || point.time_ns < end);
    if (inside && point.nbytes > highest.nbytes) Object.assign(highest, point);
  });
  const peak = highest.nbytes;
  const held = () => {
    const seq = highest.time_ns;
    const atPeak = new Map();
    const again = new Set();
    const first = new Set();
    for (const [key, list] of intervals) {
      const { storage_id: id, nbytes } = storage_sizes[key % count];
      if (list.some(([start, end]) => start <= seq && seq < end))
        atPeak.set(id, (atPeak.get(id) ?? 0) + nbytes);
      if (key >= count && !intervals.has(key % count)) again.add(id);
      const since = inputs.get(key);
      if (since !== undefined && list.every(([start]) => start >= since)) first.add(id);
    }
    return { atPeak, again, inputs: first };
  };
  return {
    peak,
    held,
    recomputeNs: median(durations),
    recomputeRangeNs: [durations[0] ?? 0, durations.at(-1) ?? 0],
    steps: new Set([...recomputeNs.keys(), ...copied.keys()]).size,
    copied: bytes,
    curve,
  };
}

/**
 * @param {Map<number, number>} sums
 * @returns {number[]}
 */
function sorted(sums) {
  return [...sums.values()].sort((a, b) => a - b);
}

/**
 * @param {number[]} values in ascending order
 * @returns {number} the lower one of two in the middle, 0 for none
 */
function median(values) {
  return values[(values.length - 1) >> 1] ?? 0;
}

/**
 * @param {Map<number, [start: number, end: number][]>} intervals
 * @param {(key: number) => number} sizeOf
 * @returns {Curve} each key counts once while its intervals overlap
 */
function sumIntervals(intervals, sizeOf) {
  /** @type {Map<number, number>} */
  const changes = new Map();
  const add = (/** @type {number} */ seq, /** @type {number} */ nbytes) =>
    changes.set(seq, (changes.get(seq) ?? 0) + nbytes);
  for (const [key, list] of intervals) {
    let last = -Infinity;
    for (const [start, end] of list.sort((a, b) => a[0] - b[0])) {
      if (end <= last) continue;
      if (start > last) {
        if (last > -Infinity) add(last, -sizeOf(key));
        add(start, sizeOf(key));
      }
      last = end;
    }
    if (last < Infinity) add(last, -sizeOf(key));
  }
  let sum = 0;
  return [...changes]
    .sort((a, b) => a[0] - b[0])
    .map(([time_ns, by]) => ({ time_ns, nbytes: (sum += by) }));
}
