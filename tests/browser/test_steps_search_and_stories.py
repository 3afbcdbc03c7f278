"""The menu of steps, filters and commands of the search, and the stories of findings."""

from __future__ import annotations

import pytest
import recordings
from test_accessibility import HOST, VIOLATIONS
from viewer_page import Stage

pytestmark = pytest.mark.one_in(3, reason="opens a page for each story", in_ci=1)

STEP_MENU = ".agv-step-menu select"
SEARCH = ".agv-search input"
STATIONS = ".agv-trail [role=option]"


def violations(stage):
    return [each for each in stage.page.evaluate(VIOLATIONS) if each.split(":")[0] not in HOST]


def time_text(page):
    return page.text_content(".agv-scrubber")


# --- steps ----------------------------------------------------------------------------------------


def test_a_round_of_two_optimizers_is_one_step_in_the_menu(open_page):
    stage = Stage(open_page(), recordings.adversarial())
    assert stage.page.locator(f"{STEP_MENU} option").all_text_contents() == [
        "all steps · peak in step 1", "step 0", "step 1",
    ]  # fmt: skip


def test_all_views_follow_the_step_of_the_menu(open_page, picture):
    stage = Stage(open_page(), recordings.retained())
    page, scene = stage.page, stage.scene
    whole = page.text_content(".agv-top-bar, header")
    page.select_option(STEP_MENU, label="step 1")
    stage.settle()
    assert "saved tensors at peak" in page.text_content(".agv-top-bar, header") != whole
    assert any(g.kind == "step" and g.label == "step 1" for g in scene.groups)
    assert stage.selected() is None  # choosing is not selecting
    assert "step 1" in stage.tree()
    stage.show("tensors")
    stage.settle()
    in_step = page.locator(".agv-saved-table tbody tr").count()
    assert in_step > 0
    page.screenshot(path=picture("steps-light"))


def test_a_click_on_a_step_of_the_timeline_shows_it_and_another_one_all(open_page):
    stage = Stage(open_page(), recordings.retained())
    page = stage.page
    stage.show("timeline")
    stage.settle()
    canvas = page.locator(".agv-tracks canvas").bounding_box()
    y = canvas["y"] + 37  # in the first row
    page.mouse.click(canvas["x"] + 160, y)  # where the recording begins
    stage.settle()
    assert page.input_value(STEP_MENU) == "0"
    page.mouse.click(canvas["x"] + canvas["width"] / 2, y)  # the chosen step fills the width
    stage.settle()
    assert page.input_value(STEP_MENU) == "-1"


def test_the_graph_stays_in_the_chosen_step(open_page):
    stage = Stage(open_page(), recordings.retained())
    page, scene = stage.page, stage.scene
    page.select_option(STEP_MENU, label="step 1")
    stage.settle()
    page.locator(".agv-slow button").first.click()
    stage.settle()
    assert page.input_value(STEP_MENU) == "1"
    node = next(n for n in scene.nodes if n.node_id == stage.selected()["id"])
    step = scene.steps[1]
    assert step.start_ns <= node.born_ns <= step.end_ns


def test_the_graph_opens_the_step_that_is_replayed(open_page):
    stage = Stage(open_page(), recordings.retained())
    page = stage.page
    page.select_option(STEP_MENU, label="step 0")
    stage.settle()
    axis = page.locator(".agv-scrubber canvas").first.bounding_box()
    page.mouse.click(axis["x"] + 0.97 * axis["width"], axis["y"] + axis["height"] / 2)
    stage.settle()
    last = len(stage.scene.steps) - 1
    assert page.input_value(STEP_MENU) == str(last)
    opened = page.locator("[role=treeitem][aria-expanded=true]").all_text_contents()
    assert any(text.startswith(f"step {last}") for text in opened)
    assert not any(text.startswith("step 0") for text in opened)


# --- search ---------------------------------------------------------------------------------------


def search(stage, text):
    stage.page.fill(SEARCH, text)
    stage.settle()
    return stage.page.text_content(".agv-results [role=status]")


def test_filters_combine_and_mark_nodes_in_the_tree(open_page, picture):
    stage = Stage(open_page(), recordings.plain())
    scene = stage.scene
    expected = [n for n in scene.nodes if n.op == "relu" and ".1." in f".{n.module}."]
    note = search(stage, "op:relu module:1")
    assert note.startswith(f"{len(expected)} node")
    assert "marked in all views" in note
    everywhere = [node for node in scene.nodes if "relu" in f"{node.op} {node.name}".lower()]
    assert search(stage, "op:relu").startswith(f"{len(everywhere)} node")
    stage.page.screenshot(path=picture("search-light"))
    none = search(stage, "op:relu saved>1GB")
    assert none.startswith("0 nodes")
    assert "no results" in none


def test_a_filter_that_does_not_exist_is_named(open_page):
    stage = Stage(open_page(), recordings.plain())
    assert "no filter: size>1mb" in search(stage, "size>1MB")


def test_commands_run_and_close_the_list(open_page):
    stage = Stage(open_page(), recordings.plain())
    search(stage, ">show time")
    stage.page.keyboard.press("Enter")
    stage.settle()
    assert stage.page.get_attribute(".agv", "data-view") == "timeline"
    assert stage.page.input_value(SEARCH) == ""
    search(stage, ">color by bytes")
    stage.page.keyboard.press("Enter")
    stage.settle()
    assert stage.page.input_value(".agv-menu:not(.agv-step-menu) select") == "bytes"
    assert stage.page.is_hidden(".agv-results")


@pytest.mark.parametrize("width", [360, 1180])
def test_results_are_inside_the_viewer_and_all_commands_are_reachable(open_page, width):
    stage = Stage(open_page(viewport={"width": width, "height": 480}), recordings.plain())
    page = stage.page
    for text in ("relu", "nothing", ">"):
        search(stage, text)
        box = page.locator(".agv-results").bounding_box()
        assert box["x"] >= 0, text
        assert box["x"] + box["width"] <= width, text
        assert box["y"] + box["height"] <= 480, text
    options = page.locator(".agv-results [role=option]")
    assert "more" not in page.text_content(".agv-results [role=status]")
    for _ in range(options.count()):
        page.keyboard.press("ArrowDown")
    last = options.last
    assert last.get_attribute("aria-selected") == "true"
    shown, entry = page.locator(".agv-results").bounding_box(), last.bounding_box()
    assert entry["y"] + entry["height"] <= shown["y"] + shown["height"] + 1


# --- stories --------------------------------------------------------------------------------------


def test_arrow_keys_go_through_a_story_and_move_graph_time_and_source(open_page, picture):
    stage = Stage(open_page(), recordings.with_story())
    page, scene = stage.page, stage.scene
    steps = [scene.cause_steps[at] for at in scene.stories[0].steps]
    page.get_by_role("button", name="Tell the story").first.click()
    stage.settle()
    assert page.locator(STATIONS).count() == len(steps)
    seen = []
    for key in ("ArrowDown", "ArrowRight", "ArrowUp"):
        line = page.text_content(".agv-trail .agv-source")
        seen.append((time_text(page), stage.selected(), line))
        page.keyboard.press(key)
        stage.settle()
    texts, selections, lines = zip(*seen, strict=True)
    assert len(set(texts)) == len(texts)
    assert [each["id"] for each in selections[:2]] == [
        scene.nodes[step.nodes[0]].node_id for step in steps[:2]
    ]
    assert steps[0].line.strip() in lines[0]
    assert steps[1].line.strip() in lines[1]
    assert page.get_attribute(f"{STATIONS} >> nth=1", "aria-selected") == "true"
    page.screenshot(path=picture("story-light"))
    page.get_by_role("button", name="Close").first.click()
    stage.settle()
    assert "everything ran" in time_text(page) or "stopped" in time_text(page)


@pytest.mark.ci(reason="tests with axe in two themes")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_rule_of_axe_is_violated_by_a_story_a_search_or_steps(open_page, axe, scheme):
    page = open_page(color_scheme=scheme, viewport={"width": 1180, "height": 720})
    stage = Stage(page, recordings.with_story())
    page.evaluate(axe)
    page.get_by_role("button", name="Tell the story").first.click()
    stage.settle()
    assert violations(stage) == []
    for text in ("op:mul", "nothing", ">"):
        search(stage, text)
        assert violations(stage) == [], text
    stage = Stage(page, recordings.adversarial())
    page.evaluate(axe)
    page.select_option(STEP_MENU, label="step 1")
    for view in stage.views():
        stage.show(view)
        stage.settle()
        assert violations(stage) == [], view
