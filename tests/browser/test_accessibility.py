"""Accessibility: contrast, zoom, narrow columns, reduced motion, keys, unusual recordings."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
import recordings
from viewer_page import Stage

from autogradviz.scene.layout.coordinates import place

pytestmark = pytest.mark.one_in(4, reason="opens every view", in_ci=2)


STYLE = Path(__file__).parents[2] / "assets" / "viewer" / "style" / "base.css"
TEXT_COLORS = (
    *("text", "backward", "saved", "mutation", "recompute", "leaf", "path", "text2", "text3"),
)


def luminance(color):
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    dark, light = sorted([luminance(a), luminance(b)])
    return (light + 0.05) / (dark + 0.05)


def mixed(a, b, share):
    parts = [(int(a[i : i + 2], 16), int(b[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(x * share + y * (1 - share)):02x}" for x, y in parts)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_colors_have_sufficient_contrast(theme):
    blocks = STYLE.read_text(encoding="utf-8").split('.agv[data-theme="dark"]')
    named = dict(re.findall(r"--(\w+): (#\w{6})", blocks[theme == "dark"].split(".agv-shell")[0]))
    backgrounds = [named[name] for name in ("surface", "canvas", "raised")]
    for color in TEXT_COLORS:
        worst = min(contrast(named[color], background) for background in backgrounds)
        assert worst >= 4.1, (color, worst)
    for hue in ("saved", "path", "leaf", "backward"):  # the strongest fill of a colored node
        strong = mixed(named[hue], named["surface"], 0.5)
        assert contrast(named["text"], strong) >= 4.1, hue


def overflowing(page):
    """Return the elements wider than the viewer, except those inside scrolling elements."""
    return page.evaluate(
        """() => {
          const root = document.querySelector(".agv").getBoundingClientRect();
          const scrolls = (element) => {
            for (let at = element; at && !at.matches(".agv"); at = at.parentElement) {
              const { overflowX } = getComputedStyle(at);
              if (overflowX !== "visible") return true;
            }
          };
          return [...document.querySelectorAll(".agv *")]
            .filter((e) => e.checkVisibility() && !scrolls(e.parentElement))
            .filter((e) => e.getBoundingClientRect().right > root.right + 1)
            .map((e) => e.className);
        }"""
    )


@pytest.mark.one_in(3, reason="shows every view for each width", in_ci=1)
@pytest.mark.parametrize(("width", "height"), [(400, 800), (944, 576)], ids=["400 px", "125 %"])
def test_every_view_fits_a_narrow_column_and_a_zoomed_page(open_page, picture, width, height):
    scene = recordings.failing()
    page = open_page(viewport={"width": width, "height": height})
    stage = Stage(page, scene)
    for view in stage.views():
        stage.show(view)
        stage.settle()
        assert overflowing(page) == [], view
        page.screenshot(path=picture(f"{view}-{width}-light"))
    small = page.evaluate(
        """() => [...document.querySelectorAll(".agv *")]
          .filter((e) => e.checkVisibility() && [...e.childNodes].some((n) => n.nodeType === 3))
          .map((e) => parseFloat(getComputedStyle(e).fontSize)).filter((size) => size < 9.5)"""
    )
    assert small == []


SCROLLING = """() => [...document.querySelectorAll(".agv *")]
  .filter((e) => e.checkVisibility() && e.scrollWidth > e.clientWidth + 1)
  .filter((e) => ["auto", "scroll"].includes(getComputedStyle(e).overflowX))
  .map((e) => e.className)"""


@pytest.mark.one_in(3, reason="shows every view for each width", in_ci=1)
@pytest.mark.parametrize(("width", "height"), [(360, 740), (900, 420), (1000, 800)])
@pytest.mark.parametrize("kind", ["failing", "diverging", "checkpointed", "adversarial"])
def test_no_view_scrolls_sideways(open_page, kind, width, height):
    stage = Stage(
        open_page(viewport={"width": width, "height": height}), getattr(recordings, kind)()
    )
    for view in stage.views():
        stage.show(view)
        stage.settle()
        assert stage.page.evaluate(SCROLLING) == [], view


@pytest.mark.parametrize(("width", "height"), [(900, 420), (1000, 800)])
def test_columns_of_a_checkpoint_are_below_each_other_and_scroll_together(open_page, width, height):
    stage = Stage(open_page(viewport={"width": width, "height": height}), recordings.diverging())
    stage.show("checkpoint")
    stage.settle()
    split = stage.page.locator(".agv-split-three")
    assert split.evaluate("each => each.scrollHeight > each.clientHeight")
    for inner in (".agv-main", ".agv-region-diffs"):
        assert split.locator(f"> {inner}").evaluate(
            "each => each.scrollHeight <= each.clientHeight + 1"
        )


def test_rail_has_checkpoints_only_if_there_are_regions(open_page):
    stage = Stage(open_page(), recordings.plain())
    assert not stage.page.locator(".agv-rail [data-view=checkpoint]").count()
    stage = Stage(open_page(), recordings.checkpointed())
    assert stage.page.locator(".agv-rail [data-view=checkpoint]").count() == 1


def test_regions_are_compared_and_chosen_in_a_table(open_page):
    scene = recordings.checkpointed()
    stage = Stage(open_page(), scene)
    stage.show("checkpoint")
    rows = stage.page.locator(".agv-regions tbody tr")
    assert rows.count() == 1 + len(scene.regions)
    rows.last.click()
    stage.settle()
    chosen = stage.page.locator(".agv-pane-checkpoint [role=option][aria-selected=true]")
    assert scene.regions[-1].module in chosen.text_content()


@pytest.mark.parametrize("width", [680, 360])
def test_graph_of_a_narrow_viewer_fits_and_the_modules_open_on_demand(open_page, picture, width):
    scene = recordings.checkpointed()
    stage = Stage(open_page(viewport={"width": width, "height": 620}), scene)
    stage.settle()
    canvas = stage.page.locator(".agv-canvas").first
    x, _, scale = map(float, canvas.get_attribute("data-camera").split())
    wide = place(scene, {group.index for group in scene.groups if group.open}).width
    assert canvas.bounding_box()["height"] > 350
    assert scale * wide > width or x < 0  # some badges are left out, or everything fits
    assert scale >= 0.56
    assert not stage.page.is_visible(".agv-tree")
    stage.page.click("button[aria-label='Show or hide the modules']")
    assert stage.page.is_visible(".agv-tree [role=treeitem]")
    stage.page.screenshot(path=picture(f"modules-{width}-light"))


def test_low_cell_of_a_notebook_shows_graph_finding_and_all_views(open_page, picture):
    stage = Stage(open_page(viewport={"width": 900, "height": 440}), recordings.failing())
    page = stage.page
    page.evaluate("change('height', 420)")
    stage.settle()
    bottom = page.locator(".agv-scrubber").bounding_box()["y"]
    for shown in (".agv-rail button >> nth=-1", ".agv-details .agv-fix", ".agv-tree .agv-selected"):
        box = page.locator(shown).first.bounding_box()
        assert box["y"] + box["height"] <= bottom + 1, shown
    rail = page.locator(".agv-rail").first
    assert rail.evaluate("rail => rail.scrollHeight <= rail.clientHeight + 1")
    page.screenshot(path=picture("low-light"))


VIOLATIONS = """axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) =>
  violations.map(({ id, nodes }) => `${id}: ${nodes[0].html}`))"""
HOST = {"page-has-heading-one", "landmark-one-main", "region", "html-has-lang", "document-title"}
"""Rules about the page around the viewer."""


@pytest.mark.one_in(20, reason="searches each view for all rules", in_ci=10)
@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize("width", [1440, 1000, 360])
@pytest.mark.parametrize("kind", ["failing", "diverging", "checkpointed", "compiled", "audited"])
def test_no_view_violates_a_rule_of_axe(open_page, axe, kind, scheme, width):
    page = open_page(color_scheme=scheme, viewport={"width": width, "height": 720})
    stage = Stage(page, getattr(recordings, kind)())
    stage.page.evaluate(axe)
    for view in stage.views():
        stage.show(view)
        if view == "tensors":
            stage.page.click(".agv-tensors .agv-choice >> text='table'")
            stage.page.locator(".agv-saved-table tbody button").first.click()
        stage.settle()
        found = stage.page.evaluate(VIOLATIONS)
        assert [each for each in found if each.split(":")[0] not in HOST] == [], view


def test_reduced_motion_disables_animations(open_page):
    scene = recordings.plain()
    stage = Stage(open_page(reduced_motion="reduce"), scene)
    group = stage.page.locator("[role=treeitem][aria-expanded=false] .agv-expander").first
    group.click()
    stage.settle()
    first = stage.page.evaluate("document.querySelector('.agv-canvas').toDataURL()")
    stage.page.wait_for_timeout(250)
    assert stage.page.evaluate("document.querySelector('.agv-canvas').toDataURL()") == first


def test_every_control_is_focusable_and_has_a_name(open_page):
    stage = Stage(open_page(), recordings.failing())
    for view in stage.views():
        stage.show(view)
        nameless = stage.page.evaluate(
            """() => [...document.querySelectorAll("button, select, input, summary, [tabindex]")]
              .filter((e) => e.checkVisibility())
              .filter((e) => e.tabIndex < 0 || !(e.ariaLabel || e.textContent.trim()))
              .map((e) => e.outerHTML.slice(0, 80))"""
        )
        assert nameless == [], view
    assert stage.page.get_attribute(".agv-tree", "role") == "tree"
    closed = stage.page.locator("[role=treeitem][aria-expanded=false]").count()
    opened = stage.page.locator("[role=treeitem][aria-expanded=true]").count()
    assert closed + opened > 1


@pytest.mark.ci(reason="lays out many compiled regions")
def test_view_of_compiled_regions_fits_a_narrow_column(open_page):
    stage = Stage(open_page(viewport={"width": 400, "height": 800}), recordings.compiled())
    stage.show("compiled")
    stage.settle()
    assert overflowing(stage.page) == []


def test_truncated_trace_has_a_notice_and_is_displayed(open_page, picture):
    scene = recordings.plain()
    torn = "the file ends in the middle; 214 events could be read"
    summary = dataclasses.replace(scene.summary, notices=(torn,))
    stage = Stage(open_page(), dataclasses.replace(scene, summary=summary))
    assert stage.page.text_content(".agv-notices").casefold() == f"{torn}.".casefold()
    assert stage.page.is_visible(".agv-canvas")
    stage.page.screenshot(path=picture("torn-light"))


def test_scene_of_another_schema_has_a_message(open_page):
    stage = Stage(open_page(), recordings.plain())
    stage.page.evaluate("""change("_payload", { schema: 99 })""")
    stage.page.wait_for_selector(".agv-empty")
    words = stage.page.text_content(".agv-empty")
    assert "schema 99, this viewer reads 1" in words


def test_group_of_thousands_opens_in_pages(open_page, picture):
    stage = Stage(open_page(), recordings.long_chain())
    closed = stage.page.locator("[role=treeitem][aria-expanded=false] .agv-expander")
    assert "iterations 2–1,299" in stage.tree()
    closed.first.click()
    stage.settle()
    assert "1–1,000 of 1,298" in stage.tree()
    closed.first.click()
    stage.settle()
    assert stage.page.locator("[role=treeitem]").count() > 10
    stage.page.screenshot(path=picture("pages-light"))


@pytest.mark.parametrize("width", [400, 900, 1280])
def test_region_differences_do_not_overlap_the_runs(open_page, picture, width):
    stage = Stage(
        open_page(viewport={"width": width, "height": 900}, color_scheme="dark"),
        recordings.diverging(),
    )
    stage.show("checkpoint")
    stage.settle()
    main, differences = (
        stage.page.locator(f".agv-split-three > .agv-{name}").bounding_box()
        for name in ("main", "region-diffs")
    )
    below = main["y"] + main["height"] <= differences["y"] + 1
    right = main["x"] + main["width"] <= differences["x"] + 1
    assert below or right
    assert right == (width == 1280)
    sources = stage.page.locator(".agv-sources > div")
    forward, recompute = sources.all_inner_texts()
    assert "self.seen = 0 items" in forward
    assert "no op ran" in forward
    assert "self.seen = 1 item" in recompute
    assert "no op ran" not in recompute
    raised = stage.page.locator(".agv-region-diffs section", has_text="Exception raised by PyTorch")
    assert "CheckpointError" in raised.inner_text()
    stage.page.screenshot(path=picture(f"checkpoint-{width}-dark"))
