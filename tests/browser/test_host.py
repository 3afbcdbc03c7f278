"""The viewer and its host: changes from Python are displayed, and unmounting cleans up."""

from __future__ import annotations

import base64

import recordings
from viewer_page import MOUNT, Stage, show_view

from autogradviz.render.html_pages import read_global_script, read_style
from autogradviz.render.widget import TraceWidget, pack


def send(stage, name, value):
    stage.page.evaluate("([name, value]) => change(name, value)", [name, value])
    stage.settle()


def test_selection_from_python_is_displayed(open_page):
    scene = recordings.plain()
    stage = Stage(open_page(), scene)
    widget = TraceWidget(scene)
    widget.select("blocks.2")
    assert "blocks.2" not in stage.tree()
    send(stage, "selected", widget.selected)
    assert "blocks.2" in stage.tree()
    send(stage, "selected", {})
    assert stage.page.locator("[role=treeitem][aria-selected=true]").count() == 0


def test_tensor_selected_from_python_opens_its_lifeline(open_page):
    scene = recordings.plain()
    stage = Stage(open_page(), scene)
    send(stage, "selected", {"kind": "tensor", "id": scene.storages[2].storage_id})
    assert stage.page.is_visible(".agv-lifelines")
    assert stage.selected()["id"] == scene.storages[2].storage_id


def test_focus_opens_a_module_and_zooms_to_it(open_page):
    scene = recordings.plain()
    stage = Stage(open_page(), scene)
    widget = TraceWidget(scene)
    widget.focus("blocks.1")
    before = stage.page.get_attribute(".agv-canvas", "data-camera")
    stage.show("findings")
    send(stage, "focused", widget.focused)
    assert stage.page.is_visible(".agv-canvas")
    assert stage.page.get_attribute(".agv-canvas", "data-camera") != before
    expanded = stage.page.query_selector("[role=treeitem][aria-selected=true]")
    assert expanded.get_attribute("aria-expanded") == "true"
    assert stage.selected()["module"] == "blocks.1"


def test_color_by_is_synchronized_in_both_directions(open_page):
    stage = Stage(open_page(), recordings.plain())
    send(stage, "color_by", "bytes")
    assert stage.page.input_value(".agv-menu select") == "bytes"
    stage.page.select_option(".agv-menu select", "time")
    assert stage.page.evaluate("traits.color_by") == "time"


WATCHED = """
window.alive = { observers: 0, frames: 0, listeners: 0 };
for (const name of ["ResizeObserver", "MutationObserver"]) {
  const Real = window[name];
  window[name] = class extends Real {
    observe(target, ...rest) {
      // Playwright observes the document itself.
      if (!this.on && target !== document) alive.observers += 1;
      this.on ||= target !== document;
      super.observe(target, ...rest);
    }
    disconnect() {
      if (this.on) alive.observers -= 1;
      this.on = false;
      super.disconnect();
    }
  };
}
const request = window.requestAnimationFrame;
const cancel = window.cancelAnimationFrame;
const waiting = new Set();
const count = () => { alive.frames = waiting.size; };
window.requestAnimationFrame = (act) => {
  const frame = request((now) => { waiting.delete(frame); count(); act(now); });
  waiting.add(frame);
  count();
  return frame;
};
window.cancelAnimationFrame = (frame) => { waiting.delete(frame); count(); cancel(frame); };
for (const target of [document, window, document.body]) {
  const [add, remove] = [target.addEventListener, target.removeEventListener];
  target.addEventListener = (...rest) => { alive.listeners += 1; add.apply(target, rest); };
  target.removeEventListener = (...rest) => { alive.listeners -= 1; remove.apply(target, rest); };
}
"""


def test_unmounted_viewer_removes_observers_frames_and_listeners(open_page):
    scene = recordings.plain()
    page = open_page()
    page.set_content("<!doctype html><body></body>")
    page.evaluate(f"() => {{ {WATCHED} }}")
    page.add_style_tag(content=read_style())
    page.add_script_tag(content=read_global_script())
    packed = base64.b64encode(pack(scene)).decode()
    listeners = page.evaluate("alive.listeners")
    for _ in range(3):
        page.evaluate(MOUNT, packed)
        page.click(".agv-rail [data-view=graph]")
        page.wait_for_selector(".agv-canvas[data-camera]")
        for view in ("timeline", "tensors", "graph"):
            show_view(page, view)
        page.click("button[aria-label=Play]")
        assert page.evaluate("alive.observers") > 0
        page.evaluate("unmount()")
        assert page.evaluate("document.body.childElementCount") == 0
        assert page.evaluate("[alive.observers, alive.frames]") == [0, 0]
        assert page.evaluate("alive.listeners") == listeners
        assert set(page.evaluate("Object.values(listeners).map((set) => set.size)")) == {0}


def test_several_viewers_on_a_page_are_independent(open_page, picture):
    first, second = recordings.plain(), recordings.failing()
    page = open_page(viewport={"width": 1180, "height": 1240})
    page.set_content("<!doctype html><body></body>")
    page.add_style_tag(content=read_style())
    page.add_script_tag(content=read_global_script())
    for scene in (first, second):
        page.evaluate(
            MOUNT.replace("innerHeight - 20", "600"), base64.b64encode(pack(scene)).decode()
        )
    page.locator(".agv-rail [data-view=graph]").first.click()
    page.wait_for_function("document.querySelectorAll('.agv-canvas[data-camera]').length === 2")
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((element) => element.id)")
    assert len(ids) == len(set(ids))
    page.locator(".agv-rail [data-view=fold]").first.click()
    page.locator(".agv-parts [data-view=tensors]").first.click()
    assert page.locator(".agv >> nth=0").get_attribute("data-view") == "tensors"
    assert page.locator(".agv >> nth=1").get_attribute("data-view") == "graph"
    titles = page.locator(".agv-details h3").all_text_contents()
    victim = second.nodes[second.findings[0].nodes[0]].name
    assert titles == [first.summary.title, victim]
    page.screenshot(path=picture("two-light"))
