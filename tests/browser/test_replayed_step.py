"""The fold and the strip below it name one step: that of the replayed time, or that on display."""

from __future__ import annotations

import pytest
import recordings
from viewer_page import Stage

SIZE = {"width": 1400, "height": 900}

WATCH_TEXTS = """() => {
  window.texts = [];
  const { fillText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    texts.push([text, ...rest]);
    fillText.call(this, text, ...rest);
  };
}"""


def stage_of(open_page, scene, view="fold", viewport=None):
    page = open_page(viewport=viewport or SIZE)
    page.evaluate(WATCH_TEXTS)
    return Stage(page, scene, view=view)


def shown(stage):
    """Return the index of the fold on display."""
    pressed = ".agv-fold-entry"
    states = stage.page.locator(pressed).evaluate_all(
        "all => all.map((each) => each.getAttribute('aria-pressed'))"
    )
    return states.index("true")


def go_to(stage, time_ns):
    stage.page.evaluate("texts.length = 0")
    stage.page.evaluate("(time) => change('state', `view=fold&time=${time}`)", time_ns)
    stage.settle()
    return [text for text, *_ in stage.page.evaluate("texts")]


def test_the_fold_is_that_of_the_replayed_step(open_page):
    scene = recordings.growing_steps()
    stage = stage_of(open_page, scene)
    assert shown(stage) == 2
    for fold in scene.folds:
        for time_ns in (fold.turn_ns, (fold.turn_ns + fold.end_ns) // 2):
            texts = go_to(stage, time_ns)
            assert shown(stage) == fold.index
            held = stage.page.text_content(".agv-scrubber-text").split(" held")[0]
            assert f"{held} held now" in [text.replace("\xa0", " ") for text in texts]


def test_the_fold_on_display_returns_at_the_end_of_the_replay(open_page):
    scene = recordings.growing_steps()
    stage = stage_of(open_page, scene)
    stage.page.locator(".agv-fold-entry").nth(1).click()
    go_to(stage, scene.folds[0].turn_ns)
    assert shown(stage) == 0
    stage.page.get_by_role("button", name="To the end").click()
    stage.settle()
    assert shown(stage) == 1


def test_a_chosen_step_is_played_alone(open_page):
    scene = recordings.growing_steps()
    stage = stage_of(open_page, scene)
    stage.page.select_option(".agv-top-bar .agv-step-menu select", label="step 0")
    stage.page.select_option(".agv-scrubber-menu >> nth=0", label="4\N{MULTIPLICATION SIGN}")
    stage.page.get_by_role("button", name="Play").click()
    seen = set()
    step = scene.steps[0]
    for _ in range(60):
        time_ns = stage.page.evaluate(
            "() => Number(document.querySelector('.agv-scrubber-bar')"
            ".getAttribute('aria-valuenow')) * 1000"
        )
        playing = stage.page.get_by_role("button", name="Pause").count()
        if not playing:
            break
        if time_ns < scene.summary.end_ns - 1000:
            seen.add(time_ns)
        assert shown(stage) == 0
        stage.page.wait_for_timeout(100)
    assert seen
    assert max(seen) <= step.end_ns + 1000
    assert min(seen) >= step.start_ns - 1000
    assert stage.page.get_by_role("button", name="Play").count() == 1


@pytest.mark.parametrize("step", [None, "step 0"])
def test_the_strip_marks_the_peak_of_the_step_on_display(open_page, step):
    scene = recordings.equal_steps()
    stage = stage_of(open_page, scene)
    if step:
        stage.page.select_option(".agv-top-bar .agv-step-menu select", label=step)
    stage.page.evaluate("texts.length = 0")
    stage.resize({"width": 1399, "height": 900})
    texts = stage.page.evaluate("texts")
    [at] = {x for text, x, *_ in texts if str(text).endswith("held at peak")}
    bands = sorted({x for text, x, *_ in texts if text == "backward"})
    # Of steps that hold the same, the last one, as the fold: the label is at its turn.
    own = bands[0 if step else -1]
    assert min(bands, key=lambda x: abs(x - at)) == own
    assert shown(stage) == (0 if step else len(scene.folds) - 1)


def test_the_first_figure_is_all_memory_where_it_is_known(open_page):
    scene = recordings.all_memory()
    stage = stage_of(open_page, scene)
    text = stage.page.text_content(".agv-figures span").replace("\xa0", " ")
    assert "in all at peak, of it" in text
    assert text.endswith("saved")


@pytest.mark.parametrize("width", [900, 1400])
def test_the_first_figure_is_whole(open_page, width):
    stage = stage_of(
        open_page, recordings.growing_steps(), "graph", {"width": width, "height": 900}
    )
    figure = stage.page.locator(".agv-figures span").first
    assert figure.evaluate("e => e.scrollWidth <= e.clientWidth + 1 || e.offsetWidth > 0")
    outer = stage.page.locator(".agv-figures").bounding_box()
    inner = figure.bounding_box()
    assert inner["x"] + inner["width"] <= outer["x"] + outer["width"] + 1


def test_a_chosen_step_is_open_and_others_are_closed(open_page):
    scene = recordings.equal_steps()
    stage = stage_of(open_page, scene, "graph")
    stage.page.select_option(".agv-top-bar .agv-step-menu select", label="step 2")
    stage.settle()
    stage.page.wait_for_timeout(300)
    rows = stage.page.locator("[role=treeitem]").evaluate_all(
        "all => all.map((e) => [e.querySelector('.agv-row-label').textContent,"
        " e.getAttribute('aria-expanded')])"
    )
    opened = dict(row for row in rows if row[0].startswith("step "))
    assert opened["step 2"] == "true"
    assert "true" not in {opened[name] for name in opened if name != "step 2"}
    boxes = stage.page.evaluate("document.querySelector('.agv-pane-graph .agv-canvas').drawn")
    drawn = sum(box["kind"] == "node" for box in boxes)
    count = stage.page.locator(".agv-toolbar > .agv-muted").text_content()
    assert first_number(count) == drawn
    assert "of step 2" in count


def first_number(text):
    return int(text.split()[0].replace(",", ""))


def test_the_graph_counts_the_nodes_that_are_drawn(open_page):
    scene = recordings.equal_steps()
    stage = stage_of(open_page, scene, "graph")
    boxes = stage.page.evaluate("document.querySelector('.agv-pane-graph .agv-canvas').drawn")
    drawn = sum(box["kind"] == "node" for box in boxes)
    assert drawn < len(scene.nodes)
    count = stage.page.locator(".agv-toolbar > .agv-muted").text_content()
    assert count == f"{drawn} of {len(scene.nodes)} nodes drawn"
    assert stage.page.locator(".agv-minimap").text_content() == ""


def test_a_double_click_on_a_chevron_opens_a_group(open_page):
    scene = recordings.equal_steps()
    stage = stage_of(open_page, scene, "graph")
    boxes = stage.page.evaluate("document.querySelector('.agv-pane-graph .agv-canvas').drawn")
    closed = next(box["ref"] for box in boxes if box["kind"] == "group")
    x, y = stage.point_of("group", closed, ())
    stage.page.mouse.dblclick(x - 4, y)
    stage.settle()
    stage.page.wait_for_timeout(300)
    boxes = stage.page.evaluate("document.querySelector('.agv-pane-graph .agv-canvas').drawn")
    assert ("frame", closed) in {(box["kind"], box["ref"]) for box in boxes}
    # What was opened is in view.
    canvas = stage.page.locator(".agv-pane-graph .agv-canvas")
    left, _, scale = map(float, canvas.get_attribute("data-camera").split())
    [frame] = [box for box in boxes if (box["kind"], box["ref"]) == ("frame", closed)]
    assert frame["x"] >= left
    assert frame["x"] + frame["width"] <= left + canvas.bounding_box()["width"] / scale + 1


def test_folds_of_a_comparison_are_wide_in_a_narrow_view(open_page):
    size = {"width": 900, "height": 900}
    stage = stage_of(open_page, recordings.equal_steps(), "compare", size)
    canvases = stage.page.locator(".agv-two-fold canvas")
    assert all(canvas.bounding_box()["width"] > 300 for canvas in canvases.all())
    table = stage.page.locator(".agv-totals")
    assert table.locator("caption").count() == 1
    assert table.locator("td[colspan]").count() == 0


def test_the_scale_of_a_coloring_is_not_on_the_graph(open_page):
    stage = stage_of(open_page, recordings.equal_steps(), "graph")
    stage.page.select_option("[aria-label='Color nodes by']", label="bytes")
    stage.settle()
    scale = stage.page.locator(".agv-color-scale").bounding_box()
    canvas = stage.page.locator(".agv-pane-graph .agv-canvas")
    box = canvas.bounding_box()
    assert scale["y"] + scale["height"] <= box["y"]
    ratio = canvas.evaluate("e => e.height / e.clientHeight / devicePixelRatio")
    assert abs(ratio - 1) < 0.01
