"""Large graphs are laid out in a worker, if the host allows workers."""

from __future__ import annotations

import base64

import pytest
import recordings
from viewer_page import MOUNT, Stage, serve_sources

from autogradviz.render.html_pages import read_global_script, read_style, render_html
from autogradviz.render.widget import pack
from autogradviz.scene.payload import to_payload

pytestmark = pytest.mark.one_in(3, reason="lays out large graphs", in_ci=2)

COUNTED = """
window.started = 0;
const Real = window.Worker;
window.Worker = class extends Real {
  constructor(...all) { super(...all); window.started += 1; }
};
"""
REFUSED = "window.Worker = class { constructor() { throw new Error('not here'); } };"
BROKEN = """
window.Worker = class {
  postMessage() { setTimeout(() => this.onerror(new Event("error", { cancelable: true }))); }
  terminate() {}
};
"""


def show(page, scene, before):
    page.set_content("<!doctype html><body style='margin:8px'></body>")
    page.evaluate(f"() => {{ {before} }}")
    page.add_style_tag(content=read_style())
    page.add_script_tag(content=read_global_script())
    page.evaluate(MOUNT, base64.b64encode(pack(scene)).decode())
    page.click(".agv-rail [data-view=graph]")
    page.wait_for_selector(".agv-canvas[data-camera]")
    page.evaluate("new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)))")


def picture_of(page):
    return page.evaluate("document.querySelector('.agv-canvas').toDataURL()")


def test_large_graph_is_laid_out_in_a_worker_with_the_same_result(open_page):
    page = open_page()
    show(page, recordings.large(), COUNTED)
    assert page.evaluate("started") == 1
    assert page.is_hidden(".agv-layout-status")
    for before in (REFUSED, BROKEN):
        other = open_page()
        show(other, recordings.large(), before)
        assert picture_of(other) == picture_of(page)


def test_small_graph_needs_no_worker(open_page):
    page = open_page()
    show(page, recordings.plain(), COUNTED)
    assert page.evaluate("started") == 0


def test_selection_during_a_layout_is_displayed_after_it(open_page):
    scene = recordings.large()
    page = open_page()
    show(page, scene, COUNTED)
    page.evaluate("document.querySelector('.agv-canvas').focus()")
    chosen = scene.nodes[1777]
    selection = {"kind": "node", "id": chosen.node_id}
    page.evaluate(
        """(selection) => {
          // Close a group, and select a node in it before the layout is complete.
          document.querySelectorAll("[role=treeitem][aria-expanded=true] .agv-expander")[1].click();
          change("selected", selection);
        }""",
        selection,
    )
    page.wait_for_selector(f".agv-details h3 >> text='{chosen.name}'")
    page.wait_for_selector(".agv-layout-status", state="hidden")
    _, y, scale = map(float, page.get_attribute(".agv-canvas", "data-camera").split())
    assert scale >= 0.6
    assert y > 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_report_lays_out_in_a_worker(open_page, tmp_path, theme):
    report = tmp_path / "report.html"
    report.write_text(render_html(recordings.large()), encoding="utf-8")
    page = open_page(color_scheme=theme)
    page.add_init_script(COUNTED)
    page.goto(report.as_uri())
    page.wait_for_selector(".agv-canvas[data-camera]")
    assert page.evaluate("started") == 1


def test_worker_ends_with_its_viewer(open_page):
    page = open_page()
    show(page, recordings.large(), COUNTED)
    assert len(page.workers) == 1
    page.evaluate("unmount()")
    page.wait_for_function("document.body.childElementCount === 0")
    for _ in range(100):
        if not page.workers:
            break
        page.evaluate("new Promise((r) => requestAnimationFrame(r))")
    assert page.workers == []


PACKED = """async (payload) => {
  const { toScene } = await import("http://viewer.test/payload/decode.js");
  const { place } = await import("http://viewer.test/layout/coordinates.js");
  const { LayoutCache } = await import("http://viewer.test/layout/cache.js");
  const { packPlacement, unpackPlacement } = await import("http://viewer.test/layout/pack_placement_for_worker.js");
  const scene = toScene(payload);
  const all = scene.groups.map((group) => group.index);
  const plain = ({ width, height, boxes, lines }) => JSON.stringify([
    width, height, boxes,
    lines.map(({ group, link, points, start, end, arrow, stub, label }) =>
      [group, link, points, start, end, arrow, stub, label]),
  ]);
  const cache = new LayoutCache(scene);
  const openings = [[0], all, all.slice(0, -1), [0, ...all.slice(2)], all];
  return openings.map((opening) => {
    const open = new Set(opening);
    const fresh = plain(place(scene, open));
    const cached = cache.place(open);
    return [plain(cached) === fresh, plain(unpackPlacement(packPlacement(cached))) === fresh];
  });
}"""


@pytest.mark.one_in(4, reason="draws each graph", in_ci=1)
@pytest.mark.parametrize("name", ["plain", "checkpointed", "dense", "long_chain"])
def test_cached_and_transferred_layouts_equal_new_layouts(open_page, name):
    page = open_page()
    serve_sources(page)
    same = page.evaluate(PACKED, to_payload(getattr(recordings, name)()))
    assert same == [[True, True]] * 5


def test_worker_runs_the_bundle_of_the_viewer(open_page):
    stage = Stage(open_page(), recordings.plain())
    names = stage.page.evaluate("Object.keys(autogradviz)")
    assert sorted(names) == ["decodeBase64", "default", "serveLayouts"]
