"""The view of compiled regions: from the graph, the strip, the picture, the card."""

from __future__ import annotations

from dataclasses import replace

import pytest
import recordings
from viewer_page import Stage, first_open

from autogradviz.scene.layout.coordinates import place

pytestmark = pytest.mark.one_in(3, reason="opens a page for each picture", in_ci=1)

PICTURE = ".agv-compiled-picture"


def show_compiled(page):
    stage = Stage(page, recordings.compiled())
    stage.show("compiled")
    stage.settle()
    return stage


def chips(stage):
    return stage.page.locator(f"{PICTURE} rect.agv-k-chip.agv-k-value[data-item]")


def opened_in_graph(page):
    """Return a stage whose first compiled region was opened by a click, and the region's group."""
    scene = recordings.compiled()
    stage = Stage(page, scene)
    node = scene.nodes[scene.compiled_regions[0].nodes[0]]
    opened = first_open(scene)
    stage.click("group", node.group, opened)
    page.wait_for_timeout(250)  # the transition
    return stage, node, opened | {node.group}


def point_of_mark(stage, node, opened, style):
    """Return the page coordinates of the first rectangle of a style in an opened picture."""
    scene = stage.scene
    region = next(each for each in scene.compiled_regions if node.index in each.nodes)
    picture = next(
        each for each in scene.compiled_pictures if each.region == region.index and each.initial
    )
    mark = next(
        each
        for each in scene.compiled_marks
        if each.picture == picture.index and each.style == style and each.item >= 0
    )
    box = next(b for b in place(scene, opened).boxes if b.kind == "node" and b.ref == node.index)
    canvas = stage.page.locator(".agv-canvas").first
    x, y, scale = map(float, canvas.get_attribute("data-camera").split())
    corner = canvas.bounding_box()
    inside = 12 + mark.x + mark.width - 4, 12 + mark.y + mark.height / 2
    return (
        (
            corner["x"] + (box.x + inside[0] - x) * scale,
            corner["y"] + (box.y + inside[1] - y) * scale,
        ),
        scene.compiled_items[mark.item],
    )


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_click_on_the_open_control_shows_the_lanes_inside_the_graph(open_page, picture, theme):
    page = open_page(color_scheme=theme, viewport={"width": 1280, "height": 900})
    stage, node, opened = opened_in_graph(page)
    group = stage.scene.groups[node.group]
    assert (group.kind, group.open, group.label) == ("compiled", False, "forward [0/0]")
    page.get_by_role("button", name="Fit").first.click()
    stage.settle()
    page.screenshot(path=picture(f"compiled-in-graph-{theme}"))
    point, item = point_of_mark(stage, node, opened, "box forward")
    page.mouse.move(*point)
    page.wait_for_selector(".agv-pane-graph .agv-tooltip:not([hidden])")
    assert page.locator(".agv-pane-graph .agv-tooltip").text_content().startswith(item.title)


def test_saved_value_of_an_opened_region_says_why_it_is_saved_and_is_selected(open_page):
    stage, node, opened = opened_in_graph(open_page(viewport={"width": 1280, "height": 900}))
    stage.page.get_by_role("button", name="Fit").first.click()
    stage.settle()
    point, item = point_of_mark(stage, node, opened, "chip value")
    stage.page.mouse.move(*point)
    stage.page.wait_for_selector(".agv-pane-graph .agv-tooltip:not([hidden])")
    reason = stage.scene.compiled_slots[item.slots[0]].reason
    assert reason in stage.page.locator(".agv-pane-graph .agv-tooltip").text_content()
    stage.page.mouse.click(*point)
    expected = "tensor" if len(item.slots) == 1 else "node"
    assert stage.selected()["kind"] == expected


def test_double_click_on_an_opened_region_shows_its_view(open_page):
    stage, node, opened = opened_in_graph(open_page())
    stage.page.get_by_role("button", name="Fit").first.click()
    stage.settle()
    stage.page.mouse.dblclick(*stage.point_of("node", node.index, opened))
    stage.page.wait_for_selector(PICTURE)
    first = stage.scene.compiled_regions[0]
    assert stage.page.text_content(".agv-compiled h3") == first.name
    assert stage.page.text_content(".agv-step[aria-current] b") == first.name


@pytest.mark.ci(reason="compiles for each page")
def test_switch_shows_saved_values_before_the_hooks_in_the_graph_and_in_the_view(
    open_page, picture
):
    stage = Stage(open_page(viewport={"width": 1280, "height": 900}), recordings.compiled_hooks())
    page = stage.page
    drawn = "() => document.querySelector('.agv-canvas').toDataURL()"
    after = page.evaluate(drawn)
    page.locator(".agv-toolbar").get_by_role("button", name="before hooks").click()
    stage.settle()
    before = page.evaluate(drawn)
    assert before != after
    page.screenshot(path=picture("compiled-hooks-in-graph"))
    stage.show("compiled")
    stage.settle()
    pressed = page.locator(".agv-compiled").get_by_role("button", name="before hooks")
    assert pressed.get_attribute("aria-pressed") == "true"
    ribbons = page.locator(f"{PICTURE} path.agv-k-ribbon.agv-k-before")
    assert ribbons.first.evaluate("(path) => getComputedStyle(path).display") == "inline"
    page.locator(".agv-compiled").get_by_role("button", name="after hooks").click()
    stage.show("graph")
    stage.settle()
    assert page.evaluate(drawn) == after


@pytest.mark.one_in(2, reason="draws each picture", in_ci=1)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [680, 1280])
def test_picture_has_two_lanes_twins_and_ribbons(open_page, picture, theme, width):
    page = open_page(color_scheme=theme, viewport={"width": width, "height": 760})
    stage = show_compiled(page)
    frames = page.locator(f"{PICTURE} rect.agv-k-checkpoint")
    assert frames.count() == 2
    twin = page.locator(f"{PICTURE} rect.agv-k-recomputed[data-item]").first.bounding_box()
    forward = page.locator(f"{PICTURE} rect.agv-k-forward[data-item]").first.bounding_box()
    ribbon = page.locator(f"{PICTURE} path.agv-k-ribbon").first.bounding_box()
    assert forward["y"] + forward["height"] <= ribbon["y"] + ribbon["height"] <= twin["y"] + 1
    page.screenshot(path=picture(f"compiled-{width}-{theme}"))
    page.get_by_role("button", name="lines").click()
    stage.settle()
    codes = page.locator(f"{PICTURE} text.agv-k-code").all_text_contents()
    assert any(code.startswith("att = torch.softmax") for code in codes)
    page.screenshot(path=picture(f"compiled-lines-{width}-{theme}"))
    sizes = page.evaluate(
        """() => [...document.querySelectorAll(".agv-compiled-picture text")]
          .map((e) => parseFloat(getComputedStyle(e).fontSize))"""
    )
    assert min(sizes) >= 9.5


@pytest.mark.parametrize("width", [420, 900])
def test_a_narrow_view_has_its_columns_below_each_other(open_page, width, picture):
    stage = show_compiled(open_page(viewport={"width": width, "height": 760}))
    scroll = stage.page.locator(".agv-compiled > .agv-scroll")
    stage.page.get_by_role("button", name="lines").click()
    stage.settle()
    assert scroll.evaluate("e => e.scrollWidth - e.clientWidth") <= 0
    names = stage.page.locator(f"{PICTURE} text.agv-k-lane-name", has_text="Forward")
    assert names.count() > 1
    stage.page.screenshot(path=picture(f"compiled-columns-{width}"))
    stage.resize({"width": 6000, "height": 760})
    stage.page.wait_for_function(
        """() => [...document.querySelectorAll(".agv-k-lane-name")]
          .filter((name) => name.textContent === "Forward").length === 1"""
    )


@pytest.mark.slow(reason="draws many pictures")
def test_texts_stay_inside_their_boxes(open_page):
    stage = show_compiled(open_page())
    stage.page.get_by_role("button", name="lines").click()
    outside = stage.page.evaluate(
        """() => [...document.querySelectorAll(".agv-compiled-picture text.agv-k-on[data-item]")]
          .filter((text) => {
            const item = text.dataset.item;
            const box = document.querySelector(`rect.agv-k-box[data-item="${item}"]`);
            return box && text.getBBox().width > box.getBBox().width;
          }).map((text) => text.textContent)"""
    )
    assert outside == []


def test_a_region_whose_lines_do_not_fit_in_a_row_is_shown_by_blocks(open_page):
    scene = recordings.compiled()
    pictures = tuple(
        replace(each, initial=each.detail == "lines") for each in scene.compiled_pictures
    )
    last = scene.compiled_regions[-1].index
    blocks, lines = (each.width for each in pictures if each.region == last)
    assert blocks < lines
    pressed = ".agv-compiled .agv-choice:has-text('lines') [aria-pressed=true]"
    page = open_page(viewport={"width": 3700, "height": 900})
    stage = Stage(page, replace(scene, compiled_pictures=pictures))
    stage.show("compiled")
    room = page.locator(".agv-compiled .agv-scroll").bounding_box()["width"] - 28
    assert lines <= room / 0.8
    assert page.text_content(pressed) == "lines"
    stage.resize({"width": int(3700 - room + 0.8 * (blocks + lines) / 2), "height": 900})
    assert page.text_content(pressed) == "blocks"
    page.get_by_role("button", name="lines").click()
    stage.resize({"width": 1200, "height": 900})
    assert page.text_content(pressed) == "lines"


def test_click_on_a_saved_value_says_why_it_is_saved_and_selects_its_storage(open_page):
    stage = show_compiled(open_page())
    stage.page.get_by_role("button", name="lines").click()
    chips(stage).first.click(force=True)
    assert stage.page.locator(".agv-slot").count() == 1
    assert "needed by" in stage.page.text_content(".agv-slot")
    assert stage.page.locator(f"{PICTURE} .agv-on").count() >= 3
    assert stage.selected()["kind"] == "tensor"
    stage.show("tensors")
    assert "needed by" in stage.page.text_content(".agv-panel-details")


def test_strip_lists_regions_and_what_recompiled_them(open_page):
    stage = show_compiled(open_page())
    scene = recordings.compiled()
    regions = stage.page.locator("button.agv-step")
    assert regions.locator("b").all_text_contents() == [r.name for r in scene.compiled_regions]
    assert stage.page.locator(".agv-step-recompile").count() == 1
    assert "size mismatch" in stage.page.text_content(".agv-step-recompile")
    regions.first.click()
    assert stage.page.text_content(".agv-compiled h3") == scene.compiled_regions[0].name
    assert stage.selected()["name"] == "CompiledFunctionBackward"


def test_source_view_links_compiled_lines_to_their_region(open_page):
    stage = Stage(open_page(), recordings.compiled())
    stage.show("source")
    lines = stage.page.locator(".agv-source-wide .agv-source-line")
    saved = lines.filter(has_text="att = torch.softmax").first
    assert "B" in saved.locator(".agv-saved").first.text_content()
    assert stage.page.locator(".agv-files h3").all_text_contents() == ["recordings.py"]
    saved.get_by_role("button", name="compiled").click()
    stage.page.wait_for_selector(PICTURE)


def test_recording_without_a_compiler_has_no_view_of_compiled_regions(open_page):
    stage = Stage(open_page(), recordings.plain())
    assert stage.page.locator("[data-view=compiled]").count() == 0
    assert stage.page.locator(".agv-parts [data-view=source]").count() == 1
