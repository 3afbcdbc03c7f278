"""A report's address names the view and the selection; a narrow picture has no empty margins."""

from __future__ import annotations

import struct
from pathlib import Path

import recordings
from viewer_page import show_view

from autogradviz.render.html_pages import render_html


def hash_of(page):
    return page.evaluate("location.hash")


def test_address_selects_and_follows_the_selection(open_page, tmp_path):
    scene = recordings.plain()
    report = tmp_path / "report.html"
    report.write_text(render_html(scene), encoding="utf-8")
    page = open_page()
    relu = next(node for node in scene.nodes if node.op == "relu")
    page.goto(f"{report.as_uri()}#node={relu.node_id}")
    page.wait_for_selector(".agv-details h3 >> text='ReluBackward0'")
    show_view(page, "source")
    assert hash_of(page) == f"#view=source&node={relu.node_id}"
    group = next(group for group in scene.groups[1:] if group.path and group.repeat == 1)
    page.evaluate(f"location.hash = 'view=graph&module={group.path}'")
    page.wait_for_selector(f".agv-details h3 >> text='{group.label}'")
    storage = scene.storages[0]
    page.evaluate(f"location.hash = 'tensor={storage.storage_id}'")
    page.wait_for_selector(".agv-pane-tensors .agv-panel-details h4")
    assert hash_of(page) == f"#view=tensors&tensor={storage.storage_id}"


def test_png_is_cropped_to_the_graph(open_page, tmp_path):
    report = tmp_path / "report.html"
    report.write_text(render_html(recordings.long_chain()), encoding="utf-8")
    page = open_page(viewport={"width": 1280, "height": 720})
    page.goto(f"{report.as_uri()}#view=graph")
    page.wait_for_selector(".agv-canvas[data-camera]")
    page.get_by_role("button", name="Zoom out").first.click()
    page.click("summary[aria-label='Export this view']")
    with page.expect_download() as download:
        page.click("text=PNG")
    header = Path(download.value.path()).read_bytes()[16:24]
    width, height = struct.unpack(">II", header)
    view = page.locator(".agv-canvas").first.bounding_box()
    assert width < 1.8 * view["width"]  # the picture has two pixels for each of the page
    assert height < 1.8 * view["height"]


def test_dragging_the_edge_of_a_panel_changes_its_width(open_page, tmp_path):
    report = tmp_path / "report.html"
    report.write_text(render_html(recordings.plain()), encoding="utf-8")
    page = open_page(viewport={"width": 1280, "height": 720})
    page.goto(f"{report.as_uri()}#view=graph")
    page.wait_for_selector(".agv-canvas[data-camera]")
    width = "document.querySelector('.agv-details').clientWidth"
    before = page.evaluate(width)
    bar = page.locator(".agv-stage .agv-splitter-right")
    box = bar.bounding_box()
    page.mouse.move(box["x"] + 3, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] - 57, box["y"] + 100, steps=3)
    page.mouse.up()
    assert abs(page.evaluate(width) - before - 60) < 8
    bar.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate(width) < before + 60
