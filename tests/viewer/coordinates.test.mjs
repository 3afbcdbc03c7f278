/** layout/coordinates.js: coordinates for any set of open groups, equal to those of Python. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { LayoutCache } from "../../assets/viewer/layout/cache.js";
import { place } from "../../assets/viewer/layout/coordinates.js";
import {
  packPlacement,
  transferList,
  unpackPlacement,
} from "../../assets/viewer/layout/pack_placement_for_worker.js";
import { toScene } from "../../assets/viewer/payload/decode.js";
import { group, makeScene } from "./scenes.mjs";

/** Written by tests/unit/test_golden_placements.py. */
const GOLDEN = JSON.parse(
  readFileSync(new URL("../golden/placements.json", import.meta.url), "utf-8"),
);

/** Return a placement as the golden file has it. */
function flat({ width, height, boxes, lines }) {
  const round = (number) => Math.round(number * 1e6) / 1e6 + 0;
  return {
    size: [width, height].map(round),
    boxes: boxes.map((box) => [
      box.kind,
      box.ref,
      ...[box.x, box.y, box.width, box.height].map(round),
    ]),
    lines: lines.map(({ group, link, points, arrow, stub, label }) => [
      group,
      link,
      points.map((point) => point.map(round)),
      arrow,
      stub,
      label && label.map(round),
    ]),
  };
}

for (const [name, { payload, placements }] of Object.entries(GOLDEN)) {
  for (const { open, placement } of placements) {
    test(`the golden scene ${name} is placed as by Python, with groups ${open} open`, () => {
      assert.deepEqual(flat(place(toScene(payload), new Set(open))), placement);
    });
  }
}

test("the golden scenes contain every kind of box and line", () => {
  const all = Object.values(GOLDEN).flatMap(({ placements }) =>
    placements.map(({ placement }) => placement),
  );
  const boxes = all.flatMap((placement) => placement.boxes);
  const lines = all.flatMap((placement) => placement.lines);
  assert.deepEqual(
    new Set(boxes.map(([kind]) => kind)),
    new Set(["node", "group", "frame"]),
  );
  assert.ok(
    lines.some(([, , , , stub]) => stub),
    "a stub",
  );
  assert.ok(
    lines.some(([, , , , , label]) => label),
    "a number of views",
  );
  assert.ok(
    lines.some(([, , points]) => points.length > 4),
    "a line with bends",
  );
});

const CHAIN = {
  nodes: [{}, {}],
  groups: [
    group({ cells: ["node 0", "node 1"], rows: [[0], [1]], links: [[1, 0]] }),
  ],
};

test("a link is a vertical line that ends with an arrow at the upper box", () => {
  const { lines } = place(makeScene(CHAIN), new Set([0]));
  assert.deepEqual(
    lines.map(({ points, start, end, arrow, stub }) => ({
      points,
      start,
      end,
      arrow,
      stub,
    })),
    [
      {
        points: [
          [56, 38],
          [56, 24],
        ],
        start: 38,
        end: 24,
        arrow: true,
        stub: false,
      },
    ],
  );
});

const SCENES = Object.values(GOLDEN).map(({ payload }) => toScene(payload));

test("a cached layout equals a new one for any previously open groups", () => {
  for (const scene of SCENES) {
    const cache = new LayoutCache(scene);
    const all = scene.groups.map((each) => each.index);
    for (const open of [
      [0],
      all,
      all.slice(0, -1),
      [0, ...all.slice(2)],
      all,
    ]) {
      assert.deepEqual(cache.place(new Set(open)), place(scene, new Set(open)));
    }
  }
});

test("a cached layout needs less work", () => {
  const scene = SCENES[0];
  const cache = new LayoutCache(scene);
  const open = new Set(scene.groups.map((each) => each.index));
  const before = cache.work(open);
  cache.place(open);
  assert.ok(cache.work(open) < before / 4);
});

test("a placement is unchanged by the transfer to another thread", () => {
  for (const scene of SCENES) {
    const placement = place(
      scene,
      new Set(scene.groups.map((each) => each.index)),
    );
    const packed = packPlacement(placement);
    const sent = structuredClone(packed, { transfer: transferList(packed) });
    assert.equal(packed.points.length, 0, "moved, not copied");
    const received = unpackPlacement(sent);
    assert.deepEqual(flat(received), flat(placement));
    assert.deepEqual(
      received.lines.map(({ start, end }) => [start, end]),
      placement.lines.map(({ start, end }) => [start, end]),
    );
  }
});
