// @ts-check
/** The viewer: one function that mounts a scene in an element, for a notebook or for a report. */

import { makeAtlas } from "./scene/scene_index.js";
import { Checkpoint } from "./views/checkpoint/checkpoint.js";
import { decodePayload } from "./payload/decode.js";
import { makeDetails } from "./shell/details/details.js";
import { h } from "./dom.js";
import { exportView } from "./export.js";
import { Findings, makeBanner } from "./views/findings/findings.js";
import { makeNotices, makeRail, makeTopBar } from "./shell/top_bar.js";
import { Graph } from "./views/graph/graph_canvas.js";
import { connectHost } from "./host.js";
import { Legend } from "./views/graph/legend.js";
import { Outline } from "./views/graph/outline.js";
import { listenToPointer } from "./views/graph/pointer.js";
import { Search } from "./shell/search.js";
import { routeTo } from "./scene/gradient_path.js";
import { Scrubber } from "./shell/scrubber.js";
import { makeSource } from "./views/source/source.js";
import { Store } from "./store.js";
import { Tensors } from "./views/tensors/tensors.js";
import { PALETTES, hostTheme, watchTheme } from "./canvas/theme.js";
import { Timeline } from "./views/timeline/timeline.js";

/** @typedef {import("./types.js").HostModel} HostModel */

/**
 * Mount the viewer; it decodes and draws as soon as it can.
 *
 * @param {{model: HostModel, el: HTMLElement}} host
 * @returns {() => void} takes the viewer away
 */
function render({ model, el }) {
  // JupyterLab's own keys stay away from what is typed here.
  const attrs = { "data-lm-suppress-shortcuts": "true" };
  const root = h("div", { class: "agv", attrs });
  el.append(root);
  let gone = false;
  let unmount = () => {};
  const mount = async () => {
    const payload = model.get("_payload");
    try {
      const scene = await decodePayload(payload);
      if (gone || payload !== model.get("_payload")) return;
      unmount();
      unmount = mountScene(root, scene, model);
    } catch (error) {
      root.replaceChildren(h("p", { class: "agv-empty", text: `autogradviz: ${error}` }));
    }
  };
  const resize = () => {
    root.style.setProperty("--agv-height", `${model.get("height")}px`);
  };
  model.on("change:_payload", mount);
  model.on("change:height", resize);
  resize();
  mount();
  return () => {
    gone = true;
    model.off("change:_payload", mount);
    model.off("change:height", resize);
    unmount();
    root.remove();
  };
}

/**
 * @param {HTMLElement} root
 * @param {import("./types.js").Scene} scene
 * @param {HostModel} model
 * @returns {() => void}
 */
function mountScene(root, scene, model) {
  const store = new Store(makeAtlas(scene));
  const palette = () => PALETTES[hostTheme()];
  root.dataset.theme = hostTheme();
  if (!scene.nodes.length) {
    root.replaceChildren(h("div", { class: "agv-shell" }, emptyWords(scene)));
    return watchTheme(() => (root.dataset.theme = hostTheme()));
  }
  const views = makeViews(store, palette);
  const restyle = () => {
    root.dataset.theme = hostTheme();
    views.redraw();
  };
  root.replaceChildren(h("div", { class: "agv-shell" }, ...views.elements), hideStill(model));
  root.addEventListener("keydown", views.press);
  store.subscribe((change) => {
    if (change === "view") root.dataset.view = store.view;
  });
  const disconnect = connectHost(store, views.graph, model);
  root.dataset.view = store.view;
  views.redraw();
  const victim = scene.findings[0]?.nodes[0];
  const asked = Object.keys(model.get("selected") ?? {}).length > 0;
  if (victim !== undefined && !asked) store.reveal({ kind: "node", index: victim });
  const stop = watchTheme(restyle);
  return () => {
    stop();
    disconnect();
    root.removeEventListener("keydown", views.press);
    views.destroy();
  };
}

/**
 * @param {Store} store
 * @param {() => import("./canvas/theme.js").Palette} palette
 */
function makeViews(store, palette) {
  const search = new Search(store);
  const graph = new Graph(store, palette);
  const outline = new Outline(store);
  const legend = new Legend(store.scene);
  const scrubber = new Scrubber(store, palette);
  const checkpoint = new Checkpoint(store);
  const findings = new Findings(store);
  listenToPointer(graph, store);
  outline.element.append(legend.element);
  const notices = makeNotices(store);
  const banner = makeBanner(store);
  const stage = h("div", { class: "agv-stage" }, notices, banner, graph.element);
  const panes = /** @type {const} */ ([
    ["graph", outline.element, stage, makeDetails(store)],
    ["timeline"],
    ["tensors"],
    ["checkpoint", checkpoint.element],
    ["findings", findings.element],
    ["source"],
  ]).map(([name, ...parts]) => h("div", { class: `agv-pane agv-pane-${name}` }, ...parts));
  const late = makeLate(store, palette, panes);
  const save = (/** @type {"svg" | "png"} */ kind) => exportView(store, graph, late, kind);
  const bar = makeTopBar(store, search.element, save);
  const elements = [bar, makeRail(store), ...panes, scrubber.element];
  const press = makeKeys(store, { search, graph, checkpoint, findings });
  const destroy = () => {
    for (const view of [graph, outline, scrubber, late.timeline, late.tensors]) view?.destroy();
  };
  const redraw = () => {
    graph.restyle();
    legend.draw(palette());
    for (const view of [scrubber, late.timeline, late.tensors]) view?.draw();
  };
  return { elements, graph, redraw, destroy, press };
}

/**
 * The views that wait until somebody looks at them.
 *
 * @typedef {object} Late
 * @property {Timeline} [timeline]
 * @property {Tensors} [tensors]
 */

/**
 * @param {Store} store
 * @param {() => import("./canvas/theme.js").Palette} palette
 * @param {HTMLElement[]} panes
 * @returns {Late} filled as they are shown
 */
function makeLate(store, palette, panes) {
  /** @type {Late} */
  const late = {};
  const waiting = new Map([
    ["timeline", () => (late.timeline = new Timeline(store, palette)).element],
    ["tensors", () => (late.tensors = new Tensors(store, palette)).element],
    ["source", () => makeSource(store)],
  ]);
  store.subscribe((change) => {
    const make = change === "view" && waiting.get(store.view);
    if (!make) return;
    waiting.delete(store.view);
    panes.find((pane) => pane.classList.contains(`agv-pane-${store.view}`))?.append(make());
  });
  return late;
}

/**
 * The keys that work wherever the focus is within the viewer.
 *
 * @param {Store} store
 * @param {{search: Search, graph: Graph, checkpoint: Checkpoint, findings: Findings}} views
 * @returns {(event: KeyboardEvent) => void}
 */
function makeKeys(store, { search, graph, checkpoint, findings }) {
  const onGraph = (/** @type {() => void} */ act) => () => store.view === "graph" && act();
  const { canvas } = graph;
  const onCanvas = (/** @type {() => void} */ act) => () => {
    if (document.activeElement !== canvas) return false;
    act();
  };
  const keys = /** @type {Record<string, () => unknown>} */ ({
    "/": () => search.focus(),
    f: onGraph(() => graph.fit()),
    n: () => (store.view === "checkpoint" ? checkpoint : findings).next(),
    p: () => store.selected && store.showRoute(routeTo(store.atlas, store.selected)),
    Escape: () => search.clear() || store.showRoute(null) || store.select(null),
    ArrowUp: onCanvas(() => graph.step("up")),
    ArrowDown: onCanvas(() => graph.step("down")),
    ArrowLeft: onCanvas(() => graph.step("left")),
    ArrowRight: onCanvas(() => graph.step("right")),
    Enter: onCanvas(() => store.selected?.kind === "group" && store.toggle(store.selected.index)),
  });
  return (event) => {
    const plain = !event.ctrlKey && !event.metaKey && !event.altKey;
    const typing = event.target instanceof HTMLInputElement;
    const act = plain && !typing ? keys[event.key] : undefined;
    if (!act || act() === false) return;
    event.preventDefault();
    event.stopPropagation();
  };
}

/**
 * A rule that hides the picture that stands in for this viewer, for as long as the viewer lives.
 *
 * @param {HostModel} model
 * @returns {HTMLElement}
 */
function hideStill(model) {
  const still = CSS.escape(model.get("_still") ?? "");
  return h("style", { text: still && `[data-agv-still="${still}"] { display: none }` });
}

/**
 * @param {import("./types.js").Scene} scene
 * @returns {HTMLElement}
 */
function emptyWords(scene) {
  const none = scene.summary.torn
    ? "This file ends before any autograd graph was recorded."
    : "This recording holds no autograd graph: nothing in it required a gradient.";
  const why = scene.summary.events ? none : "Nothing has been recorded yet.";
  return h(
    "div",
    { class: "agv-empty" },
    h("p", { text: why }),
    h("pre", { text: "with autogradviz.record(model) as trace:\n    model(x).sum().backward()" }),
    ...scene.summary.notices.map((text) => h("p", { class: "agv-muted", text })),
  );
}

export { serveLayouts } from "./layout/worker.js";

export default { render };
