// The keys of a tree, the same in the outline of the graph and among the modules of Time.

import assert from "node:assert/strict";
import test from "node:test";
import { pressInTree } from "../../assets/viewer/dom.js";

const ROWS = [1, 2, 3, 3, 2, 1].map((level) => ({ level }));

/** Return the effects of a key at a row: the row that it goes to, "open", "close" or "enter". */
function press(key, at, isOpen = null) {
  const done = [];
  const event = {
    key,
    preventDefault: () => done.push("claimed"),
    stopPropagation: () => {},
  };
  pressInTree(event, ROWS, at, isOpen, {
    go: (to) => done.push(to),
    toggle: (opens) => done.push(opens ? "open" : "close"),
    enter: () => done.push("enter"),
  });
  return done;
}

test("arrows, Home and End move; rows around are to the left, those inside to the right", () => {
  assert.deepEqual(press("ArrowDown", 1), ["claimed", 2]);
  assert.deepEqual(press("ArrowUp", 1), ["claimed", 0]);
  assert.deepEqual(press("Home", 3), ["claimed", 0]);
  assert.deepEqual(press("End", 3), ["claimed", 5]);
  assert.deepEqual(press("ArrowLeft", 3), ["claimed", 1]);
  assert.deepEqual(press("ArrowLeft", 4, false), ["claimed", 0]);
  assert.deepEqual(press("ArrowRight", 1, true), ["claimed", 2]);
});

test("a folded row opens first, and an open one closes first", () => {
  assert.deepEqual(press("ArrowRight", 1, false), ["claimed", "open"]);
  assert.deepEqual(press("ArrowLeft", 1, true), ["claimed", "close"]);
  assert.deepEqual(press("Enter", 1, true), ["claimed", "enter"]);
});

test("there is nothing beyond the ends, and other keys are left to the page", () => {
  assert.deepEqual(press("ArrowUp", 0), ["claimed"]);
  assert.deepEqual(press("ArrowDown", 5), ["claimed"]);
  assert.deepEqual(press("ArrowLeft", 5), ["claimed"]);
  assert.deepEqual(press("x", 2), []);
});
