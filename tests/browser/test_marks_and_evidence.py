"""Marks of findings and lines in all views, labels of the graph, and the page without findings."""

from __future__ import annotations

from dataclasses import replace

import pytest
import recordings
import torch
from test_accessibility import SCROLLING, overflowing
from torch import nn
from viewer_page import Stage

pytestmark = pytest.mark.one_in(2, reason="opens a page for each mark", in_ci=1)

WRITTEN_TEXTS = """() => {
  window.texts = [];
  const { fillText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...rest) {
    texts.push([text, x, y, this.measureText(text).width, this.textAlign]);
    fillText.call(this, text, x, y, ...rest);
  };
}"""


class Gated(nn.Module):
    """A factor that is written in the row of the product that saved it."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        """Return the sum of a product and of its factor."""
        scale = torch.sigmoid(self.b(x))
        y = self.a(x) * scale
        scale.mul_(0.5)
        return (y + scale).sum()


def gated():
    model = Gated()
    return recordings.record(model, lambda: model(torch.ones(4, 8)).backward(), RuntimeError)


def broadcast():
    net, target = nn.Linear(3, 1), torch.ones(8)

    def step():
        (net(torch.ones(8, 3)) - target).square().mean().backward()

    return recordings.record(net, step)


def texts_of_graph(open_page, scene, width=1180):
    """Return the page, and each text of the graph with its place."""
    page = open_page(viewport={"width": width, "height": 760})
    page.evaluate(WRITTEN_TEXTS)
    stage = Stage(page, scene)
    page.evaluate("texts.length = 0")
    stage.resize({"width": width + 1, "height": 760})
    return stage, page.evaluate("texts")


def healthy():
    return replace(recordings.plain(), findings=(), audit_entries=())


def test_a_healthy_step_shows_what_was_checked(open_page):
    scene = healthy()
    stage = Stage(open_page(), scene)
    stage.show("findings")
    shown = [
        (tile.locator("b").text_content(), tile.text_content())
        for tile in stage.page.locator(".agv-evidence").all()
    ]
    topics = {each.topic for each in scene.checks}
    assert sorted(shown) == sorted(
        (each.figure, each.figure + each.caption) for each in scene.evidence if each.topic in topics
    )
    kinds = stage.page.locator(".agv-kinds li").all_text_contents()
    assert kinds == [kind for each in scene.checks for kind in each.kinds]
    stage.page.locator("button.agv-evidence", has_text="written between save and use").click()
    assert stage.page.get_attribute(".agv", "data-view") == "tensors"


def test_what_is_held_is_marked_as_neither_good_nor_bad(open_page):
    released = next(each for each in healthy().facts if each.topic == "memory")
    held = replace(released, good=False)
    wrong = replace(held, topic="gradients")
    stage = Stage(open_page(), replace(healthy(), facts=(held, wrong)))
    stage.show("graph")
    icons = stage.page.locator(".agv-details-recording .agv-fact path")
    none, neutral, problem = (icons.nth(at).get_attribute("d") for at in range(3))
    assert len({none, neutral, problem}) == 3


@pytest.mark.parametrize("width", [420, 1180])
def test_what_was_checked_fills_its_page(open_page, width):
    stage = Stage(open_page(viewport={"width": width, "height": 760}), healthy())
    stage.show("findings")
    main = stage.page.locator(".agv-pane-findings .agv-main").bounding_box()
    assert main["height"] > 500
    lowest = max(
        each.bounding_box()["y"] + each.bounding_box()["height"]
        for each in stage.page.locator(".agv-check-group").all()
    )
    assert lowest > main["y"] + 0.7 * main["height"]
    assert overflowing(stage.page) == []


COLOR = """(name) => {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  document.querySelector(".agv").append(probe);
  return getComputedStyle(probe).color;
}"""


@pytest.mark.parametrize(
    ("confidence", "hue"), [("certain", "--mutation"), ("hint", "--path"), (None, "--text2")]
)
def test_the_badge_of_the_findings_is_red_only_for_harm(open_page, confidence, hue):
    scene = recordings.failing()
    findings = [replace(each, confidence=confidence) for each in scene.findings]
    cut = replace(scene.facts[0], text="1 line cuts a gradient path", lines=3)
    scene = replace(
        scene, findings=tuple(findings if confidence else ()), facts=(*scene.facts, cut)
    )
    stage = Stage(open_page(), scene)
    badge = stage.page.locator(".agv-rail [data-view=findings] .agv-badge")
    assert badge.text_content() == ("1" if confidence else "3")
    color = badge.evaluate("each => getComputedStyle(each).backgroundColor")
    assert color == stage.page.evaluate(COLOR, hue)


def test_the_node_never_reached_and_the_one_that_stopped_are_labeled(open_page):
    scene = recordings.failing()
    stage, texts = texts_of_graph(open_page, scene)
    roles = {"never reached", "stopped here"}
    assert roles & {text for text, *_ in texts} == {"stopped here"}, "one node is both"
    stage.page.close()
    victim = next(node.index for node in scene.nodes if node.error)
    nodes = [
        replace(
            node,
            error=node.index == victim,
            state="not_run"
            if node.index == victim
            else "failed"
            if node.index == victim + 1
            else node.state,
        )
        for node in scene.nodes
    ]
    stage, texts = texts_of_graph(open_page, replace(scene, nodes=tuple(nodes)))
    assert roles <= {text for text, *_ in texts}


def test_marks_of_lines_are_next_to_their_code_in_narrow_views(open_page):
    scene = replace(recordings.audited(), findings=())
    stage = Stage(open_page(viewport={"width": 420, "height": 800}), scene)
    stage.show("source")
    stage.settle()
    lines = stage.page.locator(".agv-source-line:has(.agv-mark:not([hidden]))")
    assert lines.count()
    for line in lines.all():
        code = line.locator("code").first.bounding_box()
        assert code["width"] > 200
        for mark in line.locator(".agv-mark:not([hidden])").all():
            box = mark.bounding_box()
            assert 0 <= box["x"] < box["x"] + box["width"] <= code["x"]
    assert stage.page.evaluate(SCROLLING) == []


@pytest.mark.parametrize("width", [900, 1180, 1440])
def test_the_label_of_a_write_is_on_no_box(open_page, width):
    scene = gated()
    stage, texts = texts_of_graph(open_page, scene, width)
    drawn = [(x, y, wide) for text, x, y, wide, _ in texts if text.startswith("mul_ writes other")]
    x, y, wide = drawn[-1]
    boxes = stage.page.evaluate("document.querySelector('.agv-pane-graph .agv-canvas').drawn")
    assert boxes
    for box in boxes:
        if box["kind"] == "node":
            right = box["x"] + box["width"]
            for left, end, top, bottom in (
                (box["x"], right, box["y"], box["y"] + box["height"]),
                (right - 8, right + 8, box["y"] - 8, box["y"] + 8),  # the mark of a failure
            ):
                assert end < x or left > x + wide or bottom < y - 5 or top > y + 5


def test_docstrings_are_no_context_of_a_finding(open_page):
    scene = gated()
    assert any(each.docstring for each in scene.lines)
    stage = Stage(open_page(), scene)
    stage.show("findings")
    excerpt = stage.page.locator(".agv-finding .agv-source").first.text_content()
    assert "scale.mul_(0.5)" in excerpt
    assert "scale = torch.sigmoid(self.b(x))" in excerpt
    assert "Return the sum" not in excerpt


def test_a_finding_without_nodes_of_its_own_is_marked_in_graph_fold_and_source(open_page):
    scene = broadcast()
    [finding] = scene.findings
    [node] = finding.nodes
    assert not scene.nodes[node].error
    stage, _ = texts_of_graph(open_page, scene)
    marked = stage.page.locator("[role=treeitem]:has([title='in a finding']) .agv-row-label")
    assert marked.all_text_contents()[-1] == scene.nodes[node].op
    assert "finding" in stage.page.locator(".agv-legend-line").inner_text()
    stage.show("fold")
    assert finding.culprit_text in stage.page.text_content(".agv-heat-culprit.agv-hint")
    stage.show("source")
    assert finding.culprit_text in stage.page.text_content(".agv-source-line.agv-culprit.agv-hint")


def test_each_finding_marks_its_line_in_the_source(open_page):
    scene = recordings.failing()
    [first] = scene.findings
    other = next(
        each
        for each in scene.lines
        if each.filename == first.culprit_file and each.lineno == first.culprit_line + 1
    )
    second = replace(
        first,
        confidence="hint",
        culprit_line=other.lineno,
        culprit_text=other.text,
        victim_line=0,
        nodes=(),
    )
    stage = Stage(open_page(), replace(scene, findings=(first, second)))
    stage.show("source")
    rows = stage.page.locator(".agv-source-wide .agv-source-line.agv-culprit")
    found = [
        (
            int(row.locator(".agv-source-number").text_content()),
            "agv-hint" in row.get_attribute("class"),
        )
        for row in rows.all()
    ]
    assert found == [(first.culprit_line, False), (other.lineno, True)]
