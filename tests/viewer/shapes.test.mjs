// A saved tensor that is a view of a larger storage says so, because its bytes are the storage's.

import assert from "node:assert/strict";
import { test } from "node:test";
import { formatShape } from "../../assets/viewer/scene/format_numbers_and_names.js";
import { shortNames } from "../../assets/viewer/views/saved_memory_fold/ribbon_shape.js";

test("a view of a larger storage is marked, a tensor with its own storage is not", () => {
  const shape = "4×64";
  assert.equal(
    formatShape({ shape, dtype: "float32", nbytes: 51_200 }),
    "4×64 view",
  );
  assert.equal(formatShape({ shape, dtype: "float32", nbytes: 1024 }), "4×64");
  assert.equal(formatShape({ shape, dtype: "bool", nbytes: 256 }), "4×64");
  assert.equal(
    formatShape({ shape, dtype: "complex64", nbytes: 2048 }),
    "4×64",
  );
  assert.equal(formatShape({ shape: "", dtype: "float32", nbytes: 400 }), "");
});

test("a block has the shortest name that no block of another module has", () => {
  const blocks = [
    "generator.net.3",
    "critic.net.0",
    "critic.net.1",
    "head",
    "",
  ];
  assert.deepEqual(blocks.map(shortNames(blocks)), blocks);
  const alone = ["model.h.0", "model.h.1", "model.head"];
  assert.deepEqual(alone.map(shortNames(alone)), ["h.0", "h.1", "head"]);
});
