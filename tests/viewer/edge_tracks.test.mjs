/** layout/edge_tracks.js: horizontal segments between two rows. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { assignTracks } from "../../assets/viewer/layout/edge_tracks.js";

/** Return the tracks of steps that are given as [x above, x below]. */
function tracksOf(...steps) {
  return assignTracks(
    steps.map(([upper, lower], link) => [upper, lower, link, 0]),
  );
}

/** Return whether two intervals overlap or touch. */
function overlap([a, b], [c, d]) {
  return (
    Math.max(Math.min(a, b), Math.min(c, d)) <=
    Math.min(Math.max(a, b), Math.max(c, d))
  );
}

test("no steps need no tracks", () => {
  assert.deepEqual(tracksOf(), { tracks: [], pitch: 8 });
});

test("steps that do not overlap share a track", () => {
  assert.deepEqual(tracksOf([40, 0], [140, 100], [300, 340]).tracks, [0, 0, 0]);
});

test("steps closer than 8 do not share a track", () => {
  assert.deepEqual(tracksOf([40, 0], [90, 48]).tracks, [0, 0]);
  assert.equal(new Set(tracksOf([40, 0], [90, 47]).tracks).size, 2);
});

test("nested steps in one direction do not cross each other's vertical segments", () => {
  // Both lead from the lower left to the upper right: the one that starts further left is higher.
  const { tracks } = tracksOf([100, 0], [80, 20]);
  assert.deepEqual(tracks, [0, 1]);
});

test("steps in both directions are kept apart", () => {
  const { tracks } = tracksOf([100, 0], [0, 100]);
  assert.notEqual(tracks[0], tracks[1]);
});

test("overlapping steps never share a track", () => {
  const steps = Array.from({ length: 40 }, (_, i) => [
    (i * 37) % 101,
    (i * 59) % 103,
  ]);
  const { tracks } = tracksOf(...steps);
  for (let i = 0; i < steps.length; i++) {
    for (let j = 0; j < i; j++) {
      if (tracks[i] === tracks[j])
        assert.ok(!overlap(steps[i], steps[j]), `${i} and ${j}`);
    }
  }
});

test("many tracks move closer: together they are at most 96 high", () => {
  const { tracks, pitch } = tracksOf(
    ...Array.from({ length: 25 }, (_, i) => [100 + i, i]),
  );
  assert.equal(Math.max(...tracks), 24);
  assert.equal(pitch, 4);
});
