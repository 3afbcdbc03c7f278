"""SVG pictures: golden files, text and escaping."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest
from make_log import began, make_log
from make_scene import Box, scene_of, tower
from test_scene_node_boxes import FAILING, MUTATED

from autogradviz.analysis import Analysis
from autogradviz.errors import GraphTooLargeError, MissingProgramError
from autogradviz.render import graphviz
from autogradviz.render.graphviz import render_dot_svg, to_dot
from autogradviz.render.svg import draw_graph as document
from autogradviz.render.svg.draw_graph import render_svg
from autogradviz.render.svg.themes_and_primitives import fit_into_cell, polyline
from autogradviz.scene.build_scene import build_scene

HOSTILE = "</title><script>alert(1)</script>\"'&\x00\ud800"


def texts(picture):
    root = ET.fromstring(picture)
    return ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]


def residual():
    return scene_of(
        Box(1, "native_layer_norm", leaves=["ln.weight", "ln.bias"], saves=["input"]),
        Box(2, "addmm", to=[1], leaves=["fc.weight"], saves=["mat1"]),
        Box(3, "add", to=[1, 2]),
        Box(4, "sum", to=[3]),
        title="A residual block",
    )


def checkpointed():
    return scene_of(
        *tower(3, region=None),
        Box(12, "exp", to=[11], module="head", region=1, by="checkpoint", saves=["result"]),
        Box(13, "mm", to=[12], module="head", region=1, by="checkpoint", saves=["self"]),
        Box(14, "sum", to=[13]),
        regions=[1],
        title="Blocks and a checkpoint",
    )


def test_residual_block_equals_the_golden_file(golden):
    golden("residual.svg", render_svg(residual()))


def test_failing_graph_in_dark_theme_equals_the_golden_file(golden):
    golden("failing-dark.svg", render_svg(scene_of(*FAILING, findings=[MUTATED]), theme="dark"))


def test_repeats_and_checkpoints_equal_the_golden_file(golden):
    golden("checkpoint.svg", render_svg(checkpointed()))


def test_picture_contains_the_text_of_all_boxes():
    assert texts(render_svg(residual())) == [
        "A residual block",
        "4 boxes for 7 nodes · 7 edges · 64 B held at peak",
        "layer_norm",
        "NativeLayerNormBackward0",
        "input v0 · 32 B",
        "ln.weight, bias 8",
        "AddmmBackward0",
        "mat1 v0 · 32 B",
        "fc.weight 8",
        "AddBackward0",
        "SumBackward0",
        "forward op, backward node",
        "saved",
        "parameter",
        "gradient flows up",
    ]


def test_finding_is_above_the_graph():
    words = texts(render_svg(scene_of(*FAILING, findings=[MUTATED])))
    assert words[2:9] == [
        MUTATED.title,
        "Cause",
        "net.py:3  ",
        "Fails",
        "net.py:2  ",
        "Fix",
        "x = x * 2",
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_hostile_text_is_escaped(theme):
    scene = scene_of(
        Box(1, HOSTILE, name=HOSTILE, module=HOSTILE, saves=[HOSTILE], leaves=[HOSTILE]),
        Box(2, "exp", to=[1], module=HOSTILE),
        title=HOSTILE,
    )
    picture = render_svg(scene, theme=theme)
    tags = {element.tag.partition("}")[2] for element in ET.fromstring(picture).iter()}
    assert tags <= {"svg", "g", "rect", "path", "circle", "text", "tspan", "title"}


def test_picture_has_no_external_references():
    picture = render_svg(checkpointed())
    assert re.findall(r"(?:href|src|url)\b", picture) == []
    assert set(re.findall(r"https?://[^\"]*", picture)) == {"http://www.w3.org/2000/svg"}


def test_picture_without_a_graph_has_a_message():
    scene = build_scene(Analysis(make_log(began(model_name="Net"))), ())
    assert texts(render_svg(scene)) == [
        "Net",
        "0 nodes · 0 edges",
        "No autograd node was seen: call backward() while recording, or keep its result alive.",
    ]


def test_too_many_boxes_are_refused_with_a_suggestion(monkeypatch):
    monkeypatch.setattr(document, "MAX_BOXES", 3)
    with pytest.raises(GraphTooLargeError, match=r"4 boxes would be visible.*depth=1"):
        render_svg(residual())


def test_corners_of_lines_are_rounded():
    assert polyline([(0, 0), (0, 20), (30, 20), (30, 40)]) == (
        "M0 0L0 14Q0 20 6 20L24 20Q30 20 30 26L30 40"
    )
    assert polyline([(5, 9), (5, 1)]) == "M5 9V1"


def test_dot_has_clusters_for_open_groups():
    scene = checkpointed()
    head = next(group.index for group in scene.groups if group.label == "head")
    source = to_dot(scene, open_groups={head})
    assert re.findall(r"subgraph (\w+)", source) == [f"cluster{head}"]
    assert "head · Head · checkpoint region" in source
    assert re.findall(r"(\w+) -> (\w+)", source) == [
        ("g1", "n0"),
        ("n10", "g1"),
        ("n11", "n10"),
        ("n12", "n11"),
        ("n13", "n12"),
    ]


def test_dot_escapes_hostile_text():
    scene = scene_of(Box(1, "exp", name='"; shell<b>&\\n', module='a"b'), title='"]; x')
    assert "<svg" in render_dot_svg(scene)


def test_error_without_graphviz_names_the_packages(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingProgramError) as error:
        render_dot_svg(residual())
    for words in ("apt install", "brew install", "conda install", "winget install", "native"):
        assert words in str(error.value)


def test_dot_refuses_large_graphs_with_the_reason(monkeypatch):
    monkeypatch.setattr(graphviz, "MAX_DOT_NODES", 3)
    with pytest.raises(GraphTooLargeError, match="minutes and gigabytes"):
        to_dot(residual())


def test_wide_picture_fits_into_the_cell_of_a_notebook_and_others_stay():
    narrow = render_svg(residual())
    assert fit_into_cell(narrow) == narrow
    wide = re.sub('width="[0-9.]+"', 'width="2000"', narrow, count=1)
    start, fitted = fit_into_cell(wide).split("\n", 1)
    assert 'width="100%" viewBox=' in start
    assert "height=" not in start
    assert fitted == wide.split("\n", 1)[1]
