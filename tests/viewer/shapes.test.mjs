// A saved tensor that is a view of a larger storage says so, because its bytes are the storage's.

import assert from "node:assert/strict";
import { test } from "node:test";
import { formatShape } from "../../assets/viewer/scene/format.js";

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
