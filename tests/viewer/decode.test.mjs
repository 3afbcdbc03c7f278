/** payload/: decoding columns to a scene. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateSync } from "node:zlib";
import {
  decodePayload,
  laterTables,
  payloadForLayout,
  toScene,
} from "../../assets/viewer/payload/decode.js";
import {
  defineLazy,
  distinct,
  makeRows,
  rowWith,
} from "../../assets/viewer/payload/lazy_rows.js";
import { group, makePayload } from "./scenes.mjs";

const PAYLOAD = makePayload(
  {
    groups: [
      group({
        index: 0,
        label: "Net",
        cells: ["node 0", "bend", "group 1"],
        rows: [[2], [1], [0]],
        links: [
          {
            path: [0, 1, 2],
            edges: [0, 1],
            target_port: 4,
            reversed: 1,
            views: 2,
          },
        ],
      }),
    ],
    nodes: [
      { index: 0, op: "exp", sequence_nr: null, hooks: ["tensor hook clip"] },
      { index: 1, op: "exp", sequence_nr: 7, hooks: [] },
    ],
    edges: [],
    tables_of_tomorrow: [{ name: "not in any list of the viewer" }],
  },
  { title: "Net" },
);

test("columns that are JSON text are parsed when a row reads them", () => {
  const columns = { index: "[0,1]", op: "[1,0]", broken: "[" };
  const rows = makeRows(columns, ["op"], ["", "exp"]);
  assert.deepEqual(
    rows.map(({ index, op }) => [index, op]),
    [
      [0, "exp"],
      [1, ""],
    ],
  );
  assert.throws(() => rows[0].broken, SyntaxError);
});

test("packed columns are sums of differences, or one value for all rows", () => {
  const columns = {
    time: "d[1000,2,-1]",
    holds: "l[[2,0,1],[1000,5,-3]]",
    op: "d[1,0,-1]",
    slot: "c[1,3]",
    hooks: "c[[],3]",
  };
  const rows = makeRows(columns, ["op", "slot"], ["", "exp"]);
  assert.deepEqual(
    rows.map(({ time, holds, op }) => [time, holds, op]),
    [
      [1000, [1000, 1005], "exp"],
      [1002, [], "exp"],
      [1001, [1002], ""],
    ],
  );
  assert.deepEqual(
    rows.map(({ slot, hooks }) => [slot, hooks]),
    Array(3).fill(["exp", []]),
  );
});

test("columns of rows as text are parsed row by row", () => {
  const rows = makeRows({ cells: "r[1,2];[];[" }, [], []);
  assert.deepEqual(rows[0].cells, [1, 2]);
  assert.deepEqual(rows[1].cells, []);
  assert.throws(() => rows[2].cells, SyntaxError);
});

test("the values that occur in a column are known without its rows", () => {
  const columns = { state: "c[1,2]", op: [0, 1], nbytes: "[5,5]" };
  const rows = makeRows(columns, ["state", "op"], ["", "exp"]);
  assert.deepEqual([...distinct(rows, "state")], ["exp"]);
  assert.deepEqual([...distinct(rows, "op")], ["", "exp"]);
  assert.deepEqual([...distinct(rows, "nbytes")], [5]);
  assert.deepEqual([...distinct([{ op: "exp" }], "op")], ["exp"]);
});

test("tables for later are decoded on request", async () => {
  const { edges, ...first } = PAYLOAD;
  const later = deflateSync(JSON.stringify({ edges })).toString("base64");
  const scene = toScene({ ...first, later });
  await laterTables(scene)();
  assert.deepEqual(scene.edges, []);
  assert.equal(laterTables(scene), undefined);
});

test("rows have the values of their columns, with decoded text", () => {
  const { nodes } = toScene(PAYLOAD);
  assert.equal(nodes.length, 2);
  assert.deepEqual(
    nodes.map(({ index, op, sequence_nr, hooks }) => ({
      index,
      op,
      sequence_nr,
      hooks,
    })),
    [
      { index: 0, op: "exp", sequence_nr: null, hooks: ["tensor hook clip"] },
      { index: 1, op: "exp", sequence_nr: 7, hooks: [] },
    ],
  );
});

test("every table of a payload becomes a table of the scene", () => {
  const scene = toScene(PAYLOAD);
  assert.deepEqual(Object.getOwnPropertyNames(scene), [
    "summary",
    ...Object.keys(PAYLOAD.string_columns),
  ]);
  assert.equal(
    scene.tables_of_tomorrow[0].name,
    "not in any list of the viewer",
  );
  assert.deepEqual(scene.edges, []);
  assert.deepEqual(scene.summary, { title: "Net" });
});

test("the cells and links of a group are decoded from separate columns", () => {
  const [root] = toScene(PAYLOAD).groups;
  assert.deepEqual(root.cells, [
    { kind: "node", ref: 0 },
    { kind: "bend", ref: -1 },
    { kind: "group", ref: 1 },
  ]);
  assert.deepEqual(root.links, [
    {
      path: [0, 1, 2],
      edges: [0, 1],
      source_port: -1,
      target_port: 4,
      reversed: true,
      views: 2,
    },
  ]);
  assert.equal(root.cells, root.cells, "decoded once");
});

test("a payload of another schema is refused", () => {
  const message = { message: "This scene has schema 99, this viewer reads 1." };
  assert.throws(() => toScene({ ...PAYLOAD, schema: 99 }), message);
});

test("a compressed payload decodes to the same scene, and is sent to the worker", async () => {
  const bytes = deflateSync(JSON.stringify(PAYLOAD));
  for (const view of [
    bytes,
    new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength),
  ]) {
    const scene = await decodePayload(view);
    assert.deepEqual(
      scene.nodes.map((node) => node.op),
      ["exp", "exp"],
    );
    assert.equal(payloadForLayout(scene), view);
  }
});

test("damaged bytes are an error", async () => {
  await assert.rejects(decodePayload(new Uint8Array([1, 2, 3])));
});

test("only groups and nodes of an uncompressed payload are sent to the worker", async () => {
  const scene = await decodePayload(PAYLOAD);
  const sent = payloadForLayout(scene);
  assert.equal(sent.groups, PAYLOAD.groups);
  assert.equal(sent.nodes, PAYLOAD.nodes);
  assert.deepEqual(sent.tables_of_tomorrow, {});
  assert.deepEqual(toScene(sent).groups[0].links, scene.groups[0].links);
});

test("a value that is null in a text column stays null", () => {
  const rows = makeRows({ name: [1, null] }, ["name"], ["", "weight"]);
  assert.deepEqual(
    rows.map(({ name }) => name),
    ["weight", null],
  );
});

test("a copy with changed fields does not change the row", () => {
  const [row] = makeRows({ state: [0], runs: [3] }, ["state"], ["ran"]);
  const changed = rowWith(row, { state: "not_run" });
  assert.deepEqual([changed.state, changed.runs], ["not_run", 3]);
  assert.equal(row.state, "ran");
});

test("a lazy property is computed once", () => {
  let computed = 0;
  const object = {};
  defineLazy(object, "value", () => ++computed);
  assert.equal(computed, 0);
  assert.deepEqual([object.value, object.value], [1, 1]);
});
