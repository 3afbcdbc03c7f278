"""Keys that work without focusing anything first, and the selection, which every view marks."""

from __future__ import annotations

import pytest
import recordings
from viewer_page import Stage

from autogradviz.render.html_pages import render_html

pytestmark = pytest.mark.one_in(3, reason="opens every view", in_ci=1)


def focused(page):
    return page.evaluate("document.activeElement?.closest('.agv-search') !== null")


def pixels(page, selector):
    return page.evaluate(f"document.querySelector('{selector}').toDataURL()")


def test_slash_focuses_the_search_in_every_view_and_escape_leaves_it(open_page):
    page = open_page()
    stage = Stage(page, recordings.plain())
    for view in stage.views():
        stage.show(view)
        page.keyboard.press("/")
        assert focused(page), view
        assert page.input_value(".agv-search input") == ""
        page.keyboard.press("Escape")
        stage.settle()
        assert not focused(page), view


def test_escape_clears_the_search_then_the_path_then_the_selection(open_page):
    page = open_page()
    stage = Stage(page, recordings.plain())
    page.focus(".agv-canvas")
    page.keyboard.press("/")
    page.keyboard.type("softmax")
    page.locator(".agv-result").first.wait_for()
    page.keyboard.press("Enter")
    stage.settle()
    plain = stage.selected()
    assert plain["kind"] == "node"
    without_path = pixels(page, ".agv-canvas")
    page.locator(".agv-canvas").focus()
    page.keyboard.press("p")
    stage.settle()
    assert pixels(page, ".agv-canvas") != without_path
    page.keyboard.press("/")
    page.keyboard.type("relu")
    page.keyboard.press("Escape")
    stage.settle()
    assert page.input_value(".agv-search input") == ""
    assert stage.selected() == plain
    page.locator(".agv-canvas").focus()
    page.keyboard.press("Escape")
    stage.settle()
    assert pixels(page, ".agv-canvas") == without_path
    assert stage.selected() == plain
    page.keyboard.press("Escape")
    assert not stage.selected()


def test_keys_work_in_a_report_before_anything_has_the_focus(open_page, tmp_path):
    report = tmp_path / "report.html"
    report.write_text(render_html(recordings.plain()), encoding="utf-8")
    page = open_page()
    page.goto(f"{report.as_uri()}#view=graph")
    page.wait_for_selector(".agv-canvas[data-camera]")
    canvas = page.locator(".agv-canvas").first
    fitted = canvas.get_attribute("data-camera")
    page.click("button[aria-label='Zoom out']")
    page.locator(f".agv-canvas:not([data-camera='{fitted}'])").first.wait_for()
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("f")
    page.locator(f".agv-canvas[data-camera='{fitted}']").first.wait_for()
    page.keyboard.press("/")
    assert focused(page)


def test_escape_closes_the_help(open_page):
    page = open_page()
    Stage(page, recordings.plain())
    page.click("summary[aria-label='Legend, keys and terms']")
    assert page.locator("text=fit the whole graph").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("text=fit the whole graph").is_visible()


def test_every_view_marks_the_selected_node(open_page):
    scene = recordings.failing()
    page = open_page()
    stage = Stage(page, scene)
    node = next(each for each in scene.nodes if each.name == "SoftmaxBackward0")
    canvases = {"timeline": ".agv-pane-timeline canvas", "tensors": ".agv-lifelines canvas"}
    page.focus(".agv-canvas")
    page.keyboard.press("Escape")
    assert not stage.selected()
    before = {}
    for view in ("timeline", "tensors"):
        stage.show(view)
        stage.settle()
        before[view] = pixels(page, canvases[view])
    stage.show("graph")
    page.focus(".agv-canvas")
    page.keyboard.press("/")
    page.keyboard.type("SoftmaxBackward0")
    page.locator(".agv-result").first.wait_for()
    page.keyboard.press("Enter")
    stage.settle()
    assert stage.selected()["kind"] == "node"
    for view, earlier in before.items():
        stage.show(view)
        stage.settle()
        assert pixels(page, canvases[view]) != earlier, view
    stage.show("source")
    stage.settle()
    marked = page.locator(".agv-selected-line .agv-source-number").all_text_contents()
    assert marked == [str(node.lineno)]
    stage.show("graph")
    assert "SoftmaxBackward0" in page.locator(".agv-details").text_content()


def test_a_question_mark_lists_the_keys(open_page):
    stage = Stage(open_page(), recordings.plain())
    stage.page.keyboard.press("?")
    assert stage.page.is_visible(".agv-keys .agv-key-help")
    stage.page.keyboard.press("Escape")
    assert not stage.page.is_visible(".agv-keys .agv-key-help")
