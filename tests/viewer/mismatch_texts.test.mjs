// The label of a broken lifeline names the writes after its save, the first one first.

import assert from "node:assert/strict";
import { test } from "node:test";

import { mismatchTexts } from "../../assets/viewer/views/tensors/event_markers_and_texts.js";

const write = (op, lineno, version, filename = "/home/net.py") => ({
  op,
  lineno,
  version,
  filename,
});

test("one write is named with its line", () => {
  const [longest] = mismatchTexts({ version: 0, seen_version: 1 }, [
    write("mul_", 3, 1),
  ]);
  assert.equal(longest, "mul_ net.py:3 · expected v0, found v1");
});

test("several writes are named with the version after each", () => {
  const writes = [write("sub_", 63, 1), write("div_", 64, 2)];
  assert.deepEqual(mismatchTexts({ version: 0, seen_version: 2 }, writes), [
    "sub_ net.py:63 (v1), div_ :64 (v2) · expected v0, found v2",
    "sub_ net.py:63 (v1), 1 more · expected v0, found v2",
    "sub_ net.py:63 (v1), 1 more",
    "expected v0, found v2",
  ]);
});
