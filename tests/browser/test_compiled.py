"""The view of compiled regions: from the graph, the strip, the picture, the card."""

from __future__ import annotations

import pytest
import recordings
from viewer_page import Stage

PICTURE = ".agv-compiled-picture"


def show_compiled(page):
    stage = Stage(page, recordings.compiled())
    stage.show("compiled")
    stage.settle()
    return stage


def chips(stage):
    return stage.page.locator(f"{PICTURE} rect.agv-k-chip.agv-k-value[data-item]")


def test_double_click_on_the_node_opens_its_compiled_region(open_page):
    scene = recordings.compiled()
    stage = Stage(open_page(), scene)
    first = scene.compiled_regions[0]
    opened = {group.index for group in scene.groups if group.open}
    stage.page.mouse.dblclick(*stage.point_of("node", first.nodes[0], opened))
    stage.page.wait_for_selector(PICTURE)
    assert stage.page.text_content(".agv-compiled h3") == first.name
    assert stage.page.text_content(".agv-step[aria-current] b") == first.name


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
    assert stage.page.locator(".agv-rail [data-view=compiled]").count() == 0
    assert stage.page.locator(".agv-rail [data-view=source]").count() == 1
