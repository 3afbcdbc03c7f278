// Times on axes, and durations.

import assert from "node:assert/strict";
import test from "node:test";

import {
  formatDuration,
  formatTimes,
} from "../../assets/viewer/scene/format_numbers_and_names.js";

test("times of an axis have as many digits as tell them apart", () => {
  assert.deepEqual(formatTimes([3.1805e9, 3.181e9, 3.1815e9]), [
    "3.1805 s",
    "3.1810 s",
    "3.1815 s",
  ]);
  assert.deepEqual(formatTimes([0.1e9, 0.2e9]), ["100 ms", "200 ms"]);
  assert.deepEqual(formatTimes([1e6, 1e6]), ["1 ms", "1 ms"]);
  assert.deepEqual(formatTimes([1.48e9, 1.5e9]), ["1.48 s", "1.50 s"]);
  assert.deepEqual(formatTimes([2.5e6, 5e6]), ["2.5 ms", "5.0 ms"]);
  assert.deepEqual(formatTimes([25e6, 50e6]), ["25 ms", "50 ms"]);
});

test("durations have three digits, and no zeros after a whole number", () => {
  const texts = [999, 4.1e3, 10e6, 10.04e6, 100e6, 4.05e6, 2e9, 1.001e9].map(
    (ns) => formatDuration(ns),
  );
  assert.deepEqual(texts, [
    "999 ns",
    "4.10 µs",
    "10 ms",
    "10.0 ms",
    "100 ms",
    "4.05 ms",
    "2 s",
    "1.00 s",
  ]);
});
