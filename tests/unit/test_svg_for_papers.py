"""Pictures of a graph and of a fold that are as wide as a column of a paper."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
from make_scene import Box, scene_of, tower
from test_scene_node_boxes import FAILING, MUTATED

from autogradviz.render.svg.draw_graph import render_svg
from autogradviz.render.svg.fit_column_of_paper import PX_PER_MM
from autogradviz.render.svg.saved_memory_fold import render_fold_svg

POINT_PX = 96 / 72
TEXT = "{http://www.w3.org/2000/svg}text"


def texts(svg):
    return ["".join(text.itertext()) for text in ET.fromstring(svg).iter(TEXT)]


def smallest_text_pt(svg):
    """Return the height of the smallest text on paper."""
    root = ET.fromstring(svg)
    shrink = float(root.get("width").removesuffix("mm")) * PX_PER_MM
    shrink /= float(root.get("viewBox").split()[2])
    return min(float(text.get("font-size")) for text in root.iter(TEXT)) * shrink / POINT_PX


@pytest.mark.parametrize("width_mm", [84, 174])
def test_graph_is_as_wide_as_the_column_with_readable_text(width_mm):
    scene = scene_of(*tower(3), title="Blocks")
    svg = render_svg(scene, width_mm=width_mm)
    assert ET.fromstring(svg).get("width") == f"{width_mm}mm"
    assert smallest_text_pt(svg) >= 6
    assert "Blocks" not in texts(svg)


def test_badges_are_left_out_only_where_there_is_no_room():
    saves = ["input", "weight", "result"]
    scene = scene_of(
        Box(1, "layer_norm", leaves=["norm.weight"], saves=saves), Box(2, "sum", to=[1])
    )
    counts = {
        width_mm: sum(
            each.startswith(tuple(saves)) for each in texts(render_svg(scene, width_mm=width_mm))
        )
        for width_mm in (174, 84, 50)
    }
    assert counts == {174: 3, 84: 1, 50: 0}


def test_nothing_can_be_clicked():
    chevron = re.compile(r"l4 4l4 -4|l3\.5 3\.5l-3\.5 3\.5")
    assert chevron.search(render_svg(scene_of(*tower(3))))
    assert not chevron.search(render_svg(scene_of(*tower(3)), width_mm=84))


def test_versions_are_written_only_where_they_change():
    scene = scene_of(Box(1, "mm", saves=["self"]), Box(2, "sum", to=[1]))
    assert "self v0 · 32 B" in texts(render_svg(scene))
    assert "self · 32 B" in texts(render_svg(scene, width_mm=84))
    scene = scene_of(*FAILING, findings=[MUTATED])
    assert [text for text in texts(render_svg(scene, width_mm=174)) if "v0" in text] == [
        "result v0 → v1 · 32 B",
        "mul_ writes result v0 → v1",
    ]


@pytest.mark.parametrize("width_mm", [84, 174])
def test_fold_is_as_wide_as_the_column_with_readable_text(width_mm):
    scene = scene_of(*tower(3))
    svg = render_fold_svg(scene, scene.folds[0], width_mm=width_mm)
    assert ET.fromstring(svg).get("width") == f"{width_mm}mm"
    assert smallest_text_pt(svg) >= 6
    assert scene.folds[0].sentence not in texts(svg)


@pytest.mark.parametrize("width_mm", [0, -84, float("nan")])
def test_width_is_positive(width_mm):
    scene = scene_of(Box(1, "exp"))
    with pytest.raises(ValueError, match="width_mm is a positive number, not"):
        render_svg(scene, width_mm=width_mm)
