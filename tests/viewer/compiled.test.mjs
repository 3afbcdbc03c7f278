/** views/compiled: the marks of a picture as SVG elements, and the cards of saved values. */

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

/** The part of an element that the view uses. */
class Element {
  constructor(tag) {
    Object.assign(this, {
      tag,
      attributes: {},
      children: [],
      dataset: {},
      style: { setProperty: () => {} },
      listeners: {},
    });
    const names = new Set();
    this.classList = {
      add: (name) => names.add(name),
      remove: (name) => names.delete(name),
      contains: (name) => names.has(name),
      toggle: (name, on) => (on ? names.add(name) : names.delete(name)),
    };
  }
  setAttribute(name, value) {
    this.attributes[name] = value;
  }
  getBoundingClientRect() {
    return { width: Number(this.attributes.width) };
  }
  addEventListener(name, listener) {
    this.listeners[name] = listener;
  }
  append(...children) {
    this.children.push(...children);
  }
  get texts() {
    const below = this.children.flatMap((child) => child.texts ?? [child]);
    return this.textContent ? [this.textContent, ...below] : below;
  }
}

beforeEach(() => {
  const createElement = (tag) => new Element(tag);
  globalThis.document = {
    createElement,
    createElementNS: (_, tag) => new Element(tag),
  };
});

const MARK = {
  picture: 0,
  x: 0,
  y: 0,
  width: 0,
  height: 0,
  text: "",
  item: -1,
};
const SCENE = {
  compiled_regions: [
    { index: 0, name: "forward [0/0]", notes: [], guards: [] },
  ],
  compiled_marks: [
    { ...MARK, shape: "rect", style: "lane", width: 300, height: 40 },
    {
      ...MARK,
      shape: "text",
      style: "lane-name",
      x: 10,
      y: 20,
      text: "Forward",
    },
    {
      ...MARK,
      shape: "path",
      style: "ribbon value after",
      width: 8,
      text: "M1 2V3",
      item: 4,
    },
    {
      ...MARK,
      shape: "rect",
      style: "chip value",
      x: 100,
      width: 90,
      height: 19,
      item: 4,
    },
    {
      ...MARK,
      shape: "text",
      style: "label",
      x: 110,
      text: "<b>addmm</b>",
      item: 4,
    },
    { ...MARK, picture: 1, shape: "rect", style: "chip value", item: 9 },
  ],
  storages: [],
  compiled_slots: ["a", "b", "x"].map((name) => ({
    region: 0,
    name,
    kind: name === "x" ? "input" : "value",
    description: "float32 4×8",
    nbytes: name === "x" ? 9000 : 1000,
    reason: name === "x" ? "an input" : "needed by mm",
    hook: "",
    remedy: "",
    filename: "net.py",
    lineno: 3,
    storage: -1,
  })),
};
const PICTURE = {
  index: 0,
  region: 0,
  detail: "lines",
  width: 300,
  height: 100,
  legend: 6,
};

/** Return the drawn picture, and the items that were selected. */
async function draw() {
  const { drawPicture } =
    await import("../../assets/viewer/views/compiled/region_as_svg.js");
  const selected = [];
  return {
    drawn: drawPicture(SCENE, PICTURE, (item) => selected.push(item)),
    selected,
  };
}

test("marks of the picture become elements with one class for each word of their style", async () => {
  const { element, ribbons } = (await draw()).drawn;
  const [lane, name, columns] = element.children[0].children;
  const [ribbon, chip, label] = columns.children;
  assert.deepEqual([element.children.length, columns.children.length], [1, 3]);
  assert.equal(lane.attributes.rx, "8");
  assert.equal(ribbon.attributes.class, "agv-k-ribbon agv-k-value agv-k-after");
  assert.deepEqual(
    [ribbon.attributes.d, ribbon.attributes["stroke-width"]],
    ["M1 2V3", "8"],
  );
  assert.equal(chip.attributes.width, "90");
  assert.equal(label.textContent, "<b>addmm</b>");
  assert.equal(name.textContent, "Forward");
  assert.deepEqual(ribbons, [4]);
});

test("a click selects the item of a mark, and the background selects none", async () => {
  const { drawn, selected } = await draw();
  const [lane, , columns] = drawn.element.children[0].children;
  drawn.element.listeners.click({ target: columns.children[1] });
  drawn.element.listeners.click({ target: lane });
  assert.deepEqual(selected, [4, -1]);
});

test("all marks of an item are highlighted, and only those", async () => {
  const { element, mark } = (await draw()).drawn;
  const lit = () =>
    element.children[0].children[2].children.filter((child) =>
      child.classList.contains("agv-on"),
    ).length;
  mark([4]);
  assert.deepEqual([lit(), element.classList.contains("agv-some")], [3, true]);
  mark([]);
  assert.deepEqual([lit(), element.classList.contains("agv-some")], [0, false]);
});

test("columns that do not fit are below the others, with the names of the lanes", async () => {
  const chip = (x, item) => ({
    ...SCENE.compiled_marks[3],
    ...{ x, width: 80, item },
  });
  const [lane, name] = SCENE.compiled_marks;
  const marks = [lane, name, chip(100, 1), chip(200, 2), chip(300, 3)];
  const picture = { ...PICTURE, width: 390 };
  const { drawPicture, partsOf } =
    await import("../../assets/viewer/views/compiled/region_as_svg.js");
  assert.deepEqual(partsOf(marks, 390, 400), [[90, 390]]);
  assert.deepEqual(partsOf(marks, 390, 200), [
    [90, 290],
    [290, 390],
  ]);
  assert.deepEqual(partsOf(marks, 390, 10).length, 3);
  const scene = { ...SCENE, compiled_marks: marks };
  const drawn = drawPicture(scene, { ...picture, legend: 5 }, () => {}, 240);
  const parts = drawn.element.children.map(({ children }) => children);
  assert.deepEqual(
    parts.map(([own, names, columns]) => [
      own.attributes.width,
      names.textContent,
      columns.children.map((each) => each.dataset.item),
    ]),
    [
      ["290", "Forward", ["1", "2"]],
      ["190", "Forward", ["3"]],
    ],
  );
  assert.ok(Number(drawn.element.attributes.width) <= 240);
});

test("computed values are listed before inputs, and equal ones once", async () => {
  const { regionCard } =
    await import("../../assets/viewer/views/compiled/cards_of_region_and_selected_part.js");
  const [card] = regionCard({ scene: SCENE }, SCENE.compiled_regions[0]);
  assert.deepEqual(card.texts, [
    "Why it is saved",
    "2.0 kB + 9.0 kB of inputs",
    ...[
      "a",
      " and 1 like it",
      "2.0 kB",
      "net.py:3 · float32 4×8",
      "needed by mm",
    ],
    ...["x", "9.0 kB", "net.py:3 · float32 4×8", "an input"],
  ]);
});
