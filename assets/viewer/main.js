// @ts-check
/**
 * The viewer: mounts a scene in an element of a notebook or of a report.
 *
 * `assets/viewer/` has `payload/` (decoding), `scene/` (index, replay, colors, paths), `layout/`,
 * `canvas/` (drawing on a canvas or to SVG), one folder per view in `views/`, and `shell/` (top
 * bar, search, scrubber, details). `shared_view_state.js` holds the reader's choices: open groups,
 * selection, time, color, path. Views subscribe to it and draw. Columns of the scene are decoded on
 * access (`payload/decode.js`), and a view is created when it is first shown, so 100,000 nodes open
 * at once. Canvases are painted through one interface; an export passes a context that writes SVG
 * (`canvas/svg_context.js`). In a notebook, the picture is a separate output after the widget,
 * because JupyterLab shows an error instead of any fallback in the same output.
 *
 * `assets/viewer/distributed_run/` is the viewer of runs, a bundle of its own (`run.js`,
 * `run.css`), which only runs load. It draws one pixel for each rank and step into an image once,
 * and scales the visible part of that image.
 *
 * `make bundle` bundles the viewers into `autogradviz/render/static/`; a test rebuilds them and
 * compares.
 */

import "./style/base.css";
import "./style/components.css";
import "./style/source_excerpt.css";
import "./views/panels_and_tables.css";
import "./shell/top_bar.css";
import "./shell/search.css";
import "./shell/help_menu.css";
import "./shell/navigation_rail.css";
import "./shell/step_page_tabs.css";
import "./shell/scrubber.css";
import "./shell/details/details.css";
import "./shell/details/why_trail.css";
import { viewStyles } from "./style/view_css_added_by_build.js";
import { PALETTES, hostTheme, watchTheme } from "./canvas/theme.js";
import { claim, h, listen } from "./dom.js";
import { exportPicture } from "./save_view_as_image.js";
import { copyText } from "./copy_button.js";
import { listCommands, openGroups } from "./shell/search_commands.js";
import { connectAddress, describeState } from "./view_state_in_address.js";
import { connectHost } from "./sync_selection_with_python.js";
import { decodePayload } from "./payload/decode.js";
import { findGradientPath } from "./scene/gradient_path.js";
import { setKindColors } from "./scene/saved_kind_colors.js";
import { indexScene } from "./scene/scene_index.js";
import { makeNavigationRail } from "./shell/navigation_rail.js";
import { makeStepPageTabs } from "./shell/step_page_tabs.js";
import { Scrubber } from "./shell/scrubber.js";
import { Search } from "./shell/search.js";
import { makeTopBar } from "./shell/top_bar.js";
import { restoreWidths } from "./shell/panel_splitter.js";
import { ViewPanes } from "./shell/view_panes.js";
import { Store } from "./shared_view_state.js";
import { VIEWS } from "./views/registry.js";

/** @typedef {import("./sync_selection_with_python.js").HostModel} HostModel */

/** In pixels, of a viewer that has shown the fold alone. */
const WHOLE_HEIGHT = 620;

/**
 * Mount the viewer; it draws as soon as the payload is decoded.
 *
 * @param {{model: HostModel, el: HTMLElement}} host
 * @returns {() => void} removes the viewer
 */
function render({ model, el }) {
  // Keeps JupyterLab's own shortcuts from acting on keys that are pressed here.
  const attrs = { "data-lm-suppress-shortcuts": "true" };
  const root = h("div", { class: "agv", attrs });
  const style = h("style", { text: viewStyles.join("") });
  el.append(style, root);
  let removed = false;
  let unmount = () => {};
  /** @type {import("./shared_view_state.js").OpenRecording} */
  const open = async (isBefore, node) => {
    const trait = isBefore ? "_before" : "_payload";
    const payload = model.get(trait);
    try {
      const scene = await decodePayload(payload);
      if (removed || payload !== model.get(trait)) return;
      unmount();
      unmount = mountScene(root, scene, model, open, node);
    } catch (error) {
      root.replaceChildren(h("p", "agv-empty", `autogradviz: ${error}`));
    }
  };
  const mount = () => open(false, -1);
  const resize = () => {
    root.style.setProperty("--agv-height", `${model.get("height")}px`);
  };
  model.on("change:_payload", mount);
  model.on("change:height", resize);
  resize();
  mount();
  return () => {
    removed = true;
    model.off("change:_payload", mount);
    model.off("change:height", resize);
    unmount();
    style.remove();
    root.remove();
  };
}

/**
 * @param {HTMLElement} root
 * @param {import("./types.js").Scene} scene
 * @param {HostModel} model
 * @param {import("./shared_view_state.js").OpenRecording} open
 * @param {number} node to reveal, -1 for none
 * @returns {() => void} unmounts the scene
 */
function mountScene(root, scene, model, open, node) {
  const paint = () => {
    root.dataset.theme = hostTheme();
    setKindColors(scene, root, hostTheme());
  };
  paint();
  if (!scene.nodes.length) {
    root.replaceChildren(h("div", "agv-shell", emptyScene(scene)));
    return watchTheme(paint);
  }
  const store = new Store(indexScene(scene), VIEWS);
  store.openRecording = open;
  store.isAlone = !!model.get("_link");
  store.otherScene = async () => {
    const packed = model.get(scene.summary.is_before ? "_payload" : "_before");
    return packed ? decodePayload(packed) : null;
  };
  store.grow = () => {
    model.set("height", WHOLE_HEIGHT);
    model.save_changes();
    root.style.setProperty("--agv-height", `${WHOLE_HEIGHT}px`);
  };
  const palette = () => PALETTES[hostTheme()];
  const search = new Search(store, () =>
    listCommands(store, VIEWS, {
      "Open all groups": () => fitAfter(() => openGroups(store, true)),
      "Close all groups": () => fitAfter(() => openGroups(store, false)),
      "Save this view as SVG": () => savePicture("svg"),
      "Save this view as PNG": () => savePicture("png"),
      "Copy a link to what is on display": () => copyText(linkText()),
      ...(scene.regions.length
        ? { "Compare forward and recomputation": () => store.showRegion(store.region) }
        : {}),
      ...(scene.module_calls.length
        ? { "What if a module were checkpointed": () => store.set("view", "memory") }
        : {}),
      ...(scene.audit_entries.length
        ? { "Audit: what each line did": () => store.showEntry(0) }
        : {}),
    }),
  );
  const fitAfter = (/** @type {() => void} */ act) => {
    store.set("view", "graph");
    act();
    panes.current?.keys?.f?.();
  };
  const panes = new ViewPanes(VIEWS, store, palette);
  const scrubber = new Scrubber(store, palette);
  const linkText = () => (model.get("_link") ? location.href : describeState(store));
  const savePicture = (/** @type {"svg" | "png"} */ kind) => exportPicture(store, panes, kind);
  const topBar = makeTopBar(VIEWS, store, search.element, savePicture, linkText, palette);
  const rail = makeNavigationRail(VIEWS, store);
  const parts = makeStepPageTabs(VIEWS, store);
  // One accent color: without a certain finding, nothing is red.
  const isHint =
    scene.findings.length > 0 && scene.findings.every(({ confidence }) => confidence === "hint");
  const shell = h(
    "div",
    `agv-shell ${isHint ? "agv-hint" : ""}`,
    topBar,
    rail,
    parts,
    ...panes.elements,
    scrubber.element,
  );
  root.replaceChildren(shell, hideStill(model));
  restoreWidths(root);
  const showKeys = () => {
    const help = /** @type {HTMLDetailsElement} */ (root.querySelector(".agv-keys"));
    help.open = true;
    help.querySelector("summary")?.focus();
  };
  const press = handleKeys(store, search, panes, showKeys);
  // A report has nothing else on its page.
  const keyed = model.get("_link") ? document.documentElement : root;
  listen(keyed, "keydown", press);
  const showView = () => {
    root.dataset.view = store.view;
    // Views with a time axis of their own have no second one.
    root.classList.toggle("agv-low", /timeline|memory/.test(store.view));
  };
  store.subscribe(["view"], showView);
  const disconnect = connectHost(store, model);
  showView();
  const redraw = () => {
    paint();
    panes.redraw();
    scrubber.draw();
  };
  const [first] = scene.findings;
  const victim = first?.nodes[0];
  // Of a step that ran, the line at fault says most, or the fold, if it is about memory or time.
  const ran = first && !scene.summary.error_type;
  const view =
    scene.ribbons.length && ["cost", "keep"].includes(first?.mechanism) ? "fold" : "findings";
  const hostSelects = Object.keys(model.get("selected") ?? {}).length > 0;
  if (node >= 0) store.reveal({ kind: "node", index: node });
  else if (scene.summary.compared_with) store.set("view", "compare");
  else if (ran && !hostSelects) store.set("view", view);
  else if (victim !== undefined && !hostSelects) store.reveal({ kind: "node", index: victim });
  // What two runs of a region did says more than where backward stopped.
  const differs = first?.mechanism === "diverge" && first.region >= 0;
  if (differs && store.view === "graph" && !hostSelects && node < 0) {
    store.showRegion(first.region);
  }
  // A narrow one has no room for words.
  if (
    first &&
    /graph|checkpoint/.test(store.view) &&
    !hostSelects &&
    node < 0 &&
    root.clientWidth <= 760
  ) {
    store.set("view", "findings");
  }
  const leave = model.get("_link") ? connectAddress(store) : () => {};
  const stop = watchTheme(redraw);
  return () => {
    stop();
    leave();
    disconnect();
    keyed.removeEventListener("keydown", press);
    panes.destroy();
    scrubber.destroy();
  };
}

/**
 * Return a handler of the keys of the view on display, and of those that work in every view.
 *
 * @param {Store} store
 * @param {Search} search
 * @param {ViewPanes} panes
 * @param {() => void} showKeys
 * @returns {(event: KeyboardEvent) => void}
 */
function handleKeys(store, search, panes, showKeys) {
  /** @type {Record<string, () => unknown>} */
  const everywhere = {
    "/": () => search.focus(),
    "?": () => showKeys(),
    n: () => store.nextFinding(),
    p: () => {
      if (store.selected) {
        store.set("gradientPath", findGradientPath(store.sceneIndex, store.selected));
      }
    },
    Escape: () => {
      if (search.clear()) return;
      if (store.trail) store.showTrail(null);
      else if (!store.set("gradientPath", null)) store.set("selected", null);
    },
  };
  return (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target instanceof HTMLInputElement) return;
    const act = panes.current?.keys?.[event.key] ?? everywhere[event.key];
    if (!act || act() === false) return;
    claim(event);
  };
}

/**
 * Return a rule that hides the static picture that stands in for this viewer, as long as the
 * viewer exists.
 *
 * @param {HostModel} model
 * @returns {HTMLElement}
 */
function hideStill(model) {
  const still = CSS.escape(model.get("_still") ?? "");
  return h("style", "", still && `[data-agv-still="${still}"] { display: none }`);
}

/**
 * @param {import("./types.js").Scene} scene
 * @returns {HTMLElement}
 */
function emptyScene({ summary }) {
  const none = summary.torn
    ? "This file ends before any autograd graph was recorded."
    : "This recording holds no autograd graph: nothing in it required a gradient.";
  return h(
    "div",
    "agv-empty",
    h("p", "", summary.events ? none : "Nothing has been recorded yet."),
    h("pre", "", "with autogradviz.record(model) as trace:\n    model(x).sum().backward()"),
    ...summary.notices.map((text) => h("p", "agv-muted", text)),
  );
}

export { serveLayouts } from "./layout/worker.js";
export { decodeBase64 } from "./payload/decode.js";

export default { render };
