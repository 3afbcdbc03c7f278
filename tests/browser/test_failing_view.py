"""The failing step: the arrow to the broken tensor, its lifeline, and the line that is to blame."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest
import recordings
from viewer_page import Stage

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

import training_programs

from autogradviz.demo.gpt import CachedAttention, Config
from autogradviz.demo.run import Training

pytestmark = pytest.mark.one_in(3, reason="draws a page for each width", in_ci=1)

RECORD_TEXTS = """() => {
  window.texts = [];
  const { fillRect, fillText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.fillRect = function (x, y, ...size) {
    if (!x && !y) texts = texts.filter(({ canvas }) => canvas !== this.canvas);
    fillRect.call(this, x, y, ...size);
  };
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y, room) {
    const width = this.measureText(text).width;
    texts.push({ canvas: this.canvas, text, x, y, width });
    fillText.call(this, text, x, y, room);
  };
}"""
TEXTS = "name => texts.filter(({canvas}) => canvas.matches(name)).map(({canvas, ...rest}) => rest)"


class Gate(recordings.nn.Module):
    """Writes a saved result in a row of the graph that has another node."""

    def __init__(self):
        super().__init__()
        self.score = recordings.nn.Linear(8, 4)
        self.value = recordings.nn.Linear(8, 4)

    def forward(self, x):
        gate = self.score(x).softmax(-1)
        gate.mul_(0.5)
        return gate * self.value(x)


@recordings.reproducible
def gated():
    model = Gate()
    x = recordings.torch.ones(3, 8)
    return recordings.record(model, lambda: model(x).sum().backward(), RuntimeError)


def failing_transformer():
    return training_programs.failing()._scene


def drawn_texts(page, selector):
    return page.evaluate(TEXTS, selector)


@recordings.reproducible
def growing_cache():
    training = Training(Config(layers=4), CachedAttention)
    return recordings.record(training.model, training.step, RuntimeError)


def test_rows_around_a_failure_keep_their_forward_ops_although_other_rows_are_wider(open_page):
    page = open_page(viewport={"width": 1290, "height": 760})
    stage = Stage(page, growing_cache())
    page.evaluate(RECORD_TEXTS)
    page.set_viewport_size({"width": 1280, "height": 760})
    stage.settle()
    texts = {each["text"] for each in drawn_texts(page, ".agv-canvas")}
    assert {"Bmm", "Softmax", "Backward0", "proj.weight, bias"} <= texts
    assert {"never reached", "stopped here"} <= texts


@pytest.mark.parametrize("make", [gated, failing_transformer, recordings.failing])
def test_arrow_label_is_clear_of_the_nodes(open_page, picture, make):
    page = open_page(viewport={"width": 1280, "height": 760})
    page.add_init_script(f"({RECORD_TEXTS})()")
    page.evaluate(RECORD_TEXTS)
    stage = Stage(page, make())
    page.mouse.move(5, 5)
    stage.settle()
    page.screenshot(path=picture(f"blame-{make.__name__}-light"))
    (label,) = [t for t in drawn_texts(page, ".agv-canvas") if " writes " in t["text"]][-1:]
    left, right, middle = label["x"], label["x"] + label["width"], label["y"]
    for box in page.evaluate("document.querySelector('.agv-canvas').drawn"):
        if box["kind"] in {"node", "group"}:
            next_to = box["x"] > right or box["x"] + box["width"] < left
            apart = box["y"] > middle + 4 or box["y"] + box["height"] < middle - 4
            assert next_to or apart, box


class Views(recordings.nn.Module):
    """Has views between its products."""

    def __init__(self):
        super().__init__()
        self.first = recordings.nn.Linear(8, 8)
        self.second = recordings.nn.Linear(8, 8)

    def forward(self, x):
        return self.second(self.first(x).view(4, 2, 4).transpose(0, 1).relu().reshape(4, 8))


@recordings.reproducible
def views():
    model = Views()
    return recordings.record(model, lambda: model(recordings.torch.ones(4, 8)).sum().backward())


def test_the_numbers_of_view_ops_are_clear_of_the_boxes(open_page):
    page = open_page(viewport={"width": 900, "height": 760})
    stage = Stage(page, views())
    stage.show("graph")
    page.evaluate(RECORD_TEXTS)
    page.set_viewport_size({"width": 890, "height": 760})
    stage.settle()
    canvas = page.locator(".agv-pane-graph .agv-canvas")
    scale = float(canvas.get_attribute("data-camera").split()[2])
    half = max(9.5, 9.5 / scale) / 2
    labels = [t for t in drawn_texts(page, ".agv-canvas") if t["text"].endswith(" view ops")]
    boxes = [box for box in canvas.evaluate("each => each.drawn") if box["kind"] == "node"]
    assert labels
    for label in labels:
        below = [box["y"] for box in boxes if label["y"] < box["y"] < label["y"] + 20]
        assert min(below) > label["y"] + half + 1


@pytest.mark.parametrize("width", [1280, 680, 360])
def test_broken_version_is_in_the_picture_at_every_width(open_page, width):
    page = open_page(viewport={"width": width, "height": 700})
    page.evaluate(RECORD_TEXTS)
    Stage(page, failing_transformer(), view="").settle()
    assert any("v0 → v1" in text["text"] for text in drawn_texts(page, ".agv-canvas"))


def test_tensors_open_at_the_events_of_the_broken_tensor(open_page):
    page = open_page(viewport={"width": 1280, "height": 760})
    page.evaluate(RECORD_TEXTS)
    stage = Stage(page, failing_transformer())
    stage.show("tensors")
    stage.settle()
    texts = drawn_texts(page, ".agv-lifelines canvas")
    assert any(text["text"].endswith("expected v0, found v1") for text in texts)
    stage.page.focus(".agv-lifelines-scroll")
    page.evaluate("texts.length = 0")
    stage.page.keyboard.press("f")  # the whole recording has no room for that text
    stage.settle()
    versions = [t for t in drawn_texts(page, ".agv-lifelines canvas") if t["text"] in {"v0", "v1"}]
    rows = {}
    for text in versions:
        rows.setdefault(text["y"], set()).add((text["x"], text["x"] + text["width"]))
    assert rows
    for row in rows.values():
        assert all(before[1] < after[0] for before, after in pairwise(sorted(row)))


@pytest.mark.parametrize("make", [failing_transformer, recordings.diverging])
def test_source_opens_at_the_line_that_is_to_blame(open_page, make):
    scene = make()
    page = open_page(viewport={"width": 1280, "height": 420})
    stage = Stage(page, scene)
    stage.show("source")
    stage.settle()
    line = page.locator(".agv-files .agv-culprit").first
    assert line.locator(".agv-source-number").text_content() == str(scene.findings[0].culprit_line)
    pane, at = page.locator(".agv-files").bounding_box(), line.bounding_box()
    assert pane["y"] <= at["y"] <= pane["y"] + pane["height"] - at["height"]


@pytest.mark.parametrize("width", [1400, 900])
def test_a_failed_recomputation_opens_with_both_runs_of_the_line(open_page, width):
    page = open_page(viewport={"width": width, "height": 800})
    stage = Stage(page, growing_cache(), view="")
    assert page.get_attribute(".agv", "data-view") == "checkpoint"
    title = page.locator(".agv-pane-checkpoint h3").first
    assert "self.attn.cache was set by line" in title.text_content()
    assert title.bounding_box()["height"] < 2.5 * 20  # at most two lines
    stage.show("graph")
    assert page.locator(".agv-details h3").first.is_visible()


def test_the_title_of_the_only_finding_is_printed_once_in_a_narrow_view(open_page):
    page = open_page(viewport={"width": 420, "height": 800})
    stage = Stage(page, growing_cache(), view="")
    assert page.get_attribute(".agv", "data-view") == "findings"
    title = stage.scene.findings[0].title
    shown = page.get_by_text(title, exact=True).locator("visible=true")
    assert shown.count() == 1
    assert shown.bounding_box()["y"] < 200
