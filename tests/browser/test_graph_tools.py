"""Tools of the graph view: colors, paths, search, copies and exports."""

from __future__ import annotations

import base64
import dataclasses
import itertools
from xml.etree import ElementTree as ET

import pytest
import recordings
from test_viewer import HOSTILE, hostile_scene, node_named
from viewer_page import Stage, serve_sources

from autogradviz.render.widget import pack

pytestmark = pytest.mark.one_in(3, reason="opens a page for each tool", in_ci=1)

LOAD = """
  const { decodePayload } = await import("http://viewer.test/payload/decode.js");
  const { indexScene } = await import("http://viewer.test/scene/scene_index.js");
  const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
  const sceneIndex = indexScene(await decodePayload(new DataView(bytes.buffer)));
"""


@pytest.fixture
def evaluate(open_page):
    """Run JavaScript with the modules of the viewer and the index of a scene."""

    def run(scene, body, argument=None):
        page = open_page()
        serve_sources(page)
        packed = base64.b64encode(pack(scene)).decode()
        return page.evaluate(
            f"async ([packed, argument]) => {{ {LOAD} {body} }}", [packed, argument]
        )

    return run


def pixels(stage):
    stage.settle()
    return stage.page.evaluate("document.querySelector('.agv-canvas').toDataURL()")


@pytest.mark.one_in(3, reason="draws a page for each attribute")
@pytest.mark.parametrize("color", ["module", "bytes", "time", "gradient"])
def test_nodes_can_be_colored_by_every_attribute(open_page, picture, color):
    for theme in ("light", "dark"):
        stage = Stage(open_page(color_scheme=theme), recordings.plain())
        plain = pixels(stage)
        stage.page.select_option(".agv-menu select", color)
        assert pixels(stage) != plain
        assert stage.page.is_visible(".agv-color-scale")
        assert stage.page.text_content(".agv-color-scale b") == color
        stage.page.screenshot(path=picture(f"color-{color}-{theme}"))
        stage.page.select_option(".agv-menu select", "kind")
        assert pixels(stage) == plain
        assert stage.page.is_hidden(".agv-color-scale")


def test_more_bytes_have_a_stronger_fill_of_one_color(evaluate):
    scene = recordings.plain()
    tints = evaluate(
        scene,
        """const { makeColoring } = await import("http://viewer.test/scene/graph_colorings.js");
        const coloring = makeColoring(sceneIndex, "bytes");
        return sceneIndex.scene.nodes.map((node) => coloring.node(node.index));""",
    )
    sizes = [
        sum(c.nbytes for c in scene.saved_badges if c.node == node.index) for node in scene.nodes
    ]
    assert len({tint["hue"] for tint in tints if tint["share"]}) == 1
    places = [tint["share"] for tint in tints]
    by_size = sorted((size, place) for size, place in zip(sizes, places, strict=True) if size)
    assert [place for _, place in by_size] == sorted(place for _, place in by_size)
    assert [by_size[0][1], by_size[-1][1]] == pytest.approx([0.06, 0.5])
    assert {place for size, place in zip(sizes, places, strict=True) if not size} == {0}


def test_non_finite_gradient_has_a_different_color(evaluate):
    scene = recordings.plain()
    first, second = scene.parameter_badges[0], scene.parameter_badges[1]
    changed = dataclasses.replace(
        scene,
        parameter_badges=(
            dataclasses.replace(first, grad="nan"),
            dataclasses.replace(second, grad="ok", norm=2.0),
            *(dataclasses.replace(p, grad="ok", norm=1.0) for p in scene.parameter_badges[2:]),
        ),
    )
    tints = evaluate(
        changed,
        """const { makeColoring } = await import("http://viewer.test/scene/graph_colorings.js");
        const coloring = makeColoring(sceneIndex, "gradient");
        return argument.map((node) => coloring.node(node));""",
        [first.node, scene.parameter_badges[-1].node, node_named(scene, "SumBackward0")],
    )
    assert [tint["hue"] for tint in tints] == ["mutation", "backward", "leaf"]
    assert tints[1]["share"] > tints[2]["share"] == 0


def test_p_key_highlights_the_path_from_the_loss(open_page, picture):
    scene = recordings.plain()
    stage = Stage(open_page(), scene)
    before = pixels(stage)
    stage.page.focus(".agv-canvas")
    stage.page.keyboard.press("/")
    stage.page.keyboard.type("blocks.0.up.weight")
    stage.page.keyboard.press("Enter")
    assert stage.selected()["module"] == "blocks.0.up"
    stage.page.focus(".agv-canvas")
    stage.page.keyboard.press("p")
    words = stage.page.text_content(".agv-path-label")
    assert words.startswith("Path from loss")
    assert int(words.split("loss")[1].split()[0]) > 5
    assert pixels(stage) != before
    stage.page.screenshot(path=picture("path-light"))
    stage.page.keyboard.press("Escape")  # the search
    assert stage.page.is_visible(".agv-path-label")
    stage.page.keyboard.press("Escape")
    assert stage.page.is_hidden(".agv-path-label")
    assert stage.selected()["module"] == "blocks.0.up"


def test_gradient_path_is_shortest_and_complete(evaluate):
    scene = recordings.plain()
    target = node_named(scene, "ReluBackward0")
    nodes, edges = evaluate(
        scene,
        """const { findGradientPath } = await import("http://viewer.test/scene/gradient_path.js");
        const { nodes, edges } = findGradientPath(sceneIndex, { kind: "node", index: argument });
        return [nodes, [...edges]];""",
        target,
    )
    sources = {edge.source for edge in scene.edges}
    root = next(iter(sources - {edge.target for edge in scene.edges}))
    assert (nodes[0], nodes[-1]) == (root, target)
    pairs = {(scene.edges[e].source, scene.edges[e].target) for e in edges}
    assert pairs == set(itertools.pairwise(nodes))


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("relu", "op"),
        ("blocks.1", "module"),
        ("head.weight", "parameter"),
        ("recordings.py:2", "line"),
        ("SoftmaxBackward0", "node"),
        ("scores", "tensor"),
    ],
)
def test_search_finds_ops_modules_parameters_lines_and_tensors(open_page, words, kind):
    stage = Stage(open_page(), recordings.plain())
    stage.page.focus(".agv-search input")
    stage.page.keyboard.type(words)
    first = stage.page.locator(".agv-result").first
    assert first.locator(".agv-result-kind").text_content() == kind
    stage.page.keyboard.press("Enter")
    assert stage.selected()["kind"] == {"module": "group", "tensor": "tensor"}.get(kind, "node")


def test_tensor_is_found_by_its_number_and_tab_completes(open_page):
    scene = recordings.plain()
    stage = Stage(open_page(), scene)
    storage = scene.storages[3]
    stage.page.focus(".agv-search input")
    stage.page.keyboard.type(f"s{storage.storage_id} ")
    stage.page.keyboard.press("Enter")
    assert stage.selected()["id"] == storage.storage_id
    assert stage.page.is_visible(".agv-lifelines")
    stage.page.fill(".agv-search input", "softm")
    stage.page.keyboard.press("Tab")
    assert stage.page.input_value(".agv-search input") in {"softmax out", "SoftmaxBackward0"}


def test_name_and_line_can_be_copied(open_page):
    scene = recordings.plain()
    page = open_page()
    page.add_init_script(
        "Object.defineProperty(navigator, 'clipboard', {value: {writeText: async (text) => "
        "{ window.copied = text; }}})"
    )
    page.goto("data:text/html,<!doctype html>")
    stage = Stage(page, scene)
    stage.page.focus(".agv-search input")
    stage.page.keyboard.type("SoftmaxBackward0")
    stage.page.keyboard.press("Enter")
    node = scene.nodes[node_named(scene, "SoftmaxBackward0")]
    copied = []
    for what in ("name", "line"):
        stage.page.click(f"[aria-label='Copy {what}']")
        copied.append(stage.page.evaluate("window.copied"))
    assert copied == [node.name, f"{node.filename}:{node.lineno}"]


def test_saved_tensor_leads_to_its_lifeline(open_page):
    scene = recordings.failing()
    stage = Stage(open_page(), scene)
    stage.page.click(".agv-details [aria-label^='Why is result kept']")
    assert stage.page.is_visible(".agv-lifelines")
    assert "SoftmaxBackward0.result" in stage.page.text_content(
        ".agv-panel-story .agv-panel-details"
    )


def export(stage, kind, tmp_path):
    stage.page.click("summary[aria-label='Export this view']")
    with stage.page.expect_download() as download:
        stage.page.click(f".agv-export >> text={kind.upper()}")
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    return path


WORDS = {
    "graph": "Softmax Backward0",
    "timeline": "forward",
    "tensors": "v0",
    "memory": "held at the peak",
    "findings": "mul_",
    "source": "softmax",
}


@pytest.mark.one_in(3, reason="draws a page for each view")
@pytest.mark.parametrize("view", sorted(WORDS))
def test_each_view_can_be_exported_as_a_picture(open_page, tmp_path, view):
    scene = recordings.failing()
    stage = Stage(open_page(), scene)
    stage.show(view)
    stage.settle()
    svg = export(stage, "svg", tmp_path)
    assert svg.name == f"{scene.summary.title}-{view}.svg"
    tree = ET.parse(svg)
    words = " ".join(tree.getroot().itertext())
    assert WORDS[view] in words
    png = export(stage, "png", tmp_path)
    data = png.read_bytes()
    assert data.startswith(b"\x89PNG")
    width = int.from_bytes(data[16:20])
    assert width == 2 * round(float(tree.getroot().get("width")))


def test_hostile_names_are_escaped_in_an_exported_picture(open_page, tmp_path):
    stage = Stage(open_page(), hostile_scene())
    path = export(stage, "svg", tmp_path)
    tree = ET.parse(path)
    kinds = {element.tag.rpartition("}")[2] for element in tree.iter()}
    assert kinds <= {"svg", "path", "text", "clipPath"}
    assert any(text[:6] in HOSTILE for text in tree.getroot().itertext() if text[:2] == "</")


def test_breadcrumbs_name_the_groups_of_an_invisible_header(open_page, picture):
    scene = recordings.plain()
    blocks = next(group for group in scene.groups if group.path == "blocks")
    repeat = next(group for group in scene.groups if group.repeat == 3)
    stage = Stage(open_page(), scene)
    breadcrumbs = stage.page.locator(".agv-breadcrumbs")
    assert breadcrumbs.is_hidden()
    stage.page.evaluate("(group) => change('focused', { group })", repeat.index)
    stage.settle()
    zoom = stage.page.locator("button[aria-label='Zoom in']")
    for _ in range(6):
        zoom.click()
    stage.settle()
    breadcrumbs.wait_for()
    assert breadcrumbs.inner_text().startswith(blocks.label)
    stage.page.screenshot(path=picture("crumbs-light"))
    breadcrumbs.get_by_text(blocks.label, exact=True).click()
    stage.settle()
    assert breadcrumbs.is_hidden()
    assert stage.selected()["id"] == blocks.index


def test_fix_without_code_is_displayed_as_text(open_page):
    scene = recordings.diverging()
    first, *others = scene.findings
    text = dataclasses.replace(first, fix="# keep the list out of the region")
    stage = Stage(open_page(), dataclasses.replace(scene, findings=(text, *others)))
    fix = stage.page.locator(".agv-card .agv-fix-text, .agv-card .agv-fix")
    assert "#" not in fix.first.inner_text()
