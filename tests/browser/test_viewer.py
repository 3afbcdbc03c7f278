"""The viewer in an empty page."""

from __future__ import annotations

import base64
import dataclasses
import re

import pytest
import recordings
from viewer_page import Stage, closed_groups, first_open, show_view, views_of

from autogradviz.render.html_pages import render_html
from autogradviz.render.widget import pack

pytestmark = pytest.mark.one_in(2, reason="opens a page for each report", in_ci=1)


TEXTS_OF_CURVES = """() => {
  window.texts = [];
  const { fillText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...rest) {
    const { actualBoundingBoxLeft: left, actualBoundingBoxRight: right } = this.measureText(text);
    const isCurve = this.canvas.closest(".agv-held-picture");
    if (isCurve) texts.push([text, x - left, x + right, y]);
    fillText.call(this, text, x, y, ...rest);
  };
}"""


def group_named(scene, label):
    return next(group.index for group in scene.groups if group.label == label)


def node_named(scene, name):
    return next(node.index for node in scene.nodes if node.name == name)


def test_click_on_a_node_selects_it_in_python(open_page):
    scene = recordings.plain()
    stage = Stage(open_page(), scene)
    node = scene.nodes[node_named(scene, "SoftmaxBackward0")]
    stage.click("node", node.index, first_open(scene))
    assert stage.selected() == {
        "kind": "node",
        "id": node.node_id,
        "name": "SoftmaxBackward0",
        "module": node.module,
        "location": f"{node.filename}:{node.lineno}",
    }
    assert stage.page.evaluate("saves") == 1
    assert stage.page.text_content(".agv-details h3") == "SoftmaxBackward0"


IS_WHOLE = """() => {
  const canvas = document.querySelector(".agv-pane-graph .agv-canvas");
  const [x, , scale] = canvas.dataset.camera.split(" ").map(Number);
  const right = x + canvas.clientWidth / scale;
  return canvas.drawn.every((box) => box.x >= x && box.x + box.width <= right);
}"""


def test_chevron_opens_a_group_and_its_header_keeps_its_height(open_page):
    scene = recordings.plain()
    page = open_page(reduced_motion="reduce")
    stage = Stage(page, scene)
    opened = first_open(scene)
    group = closed_groups(scene, opened)[0]
    before = stage.point_of("group", group, opened)
    stage.click("group", group, opened)
    after = stage.point_of("frame", group, opened | {group})
    # The chevron is 14 below the top of a closed group, and 15 below that of an open group.
    assert after[1] == pytest.approx(before[1], abs=3)
    assert page.evaluate(IS_WHOLE)  # it moves sideways so that nothing is pushed out of view
    stage.click("frame", group, opened | {group})
    assert stage.point_of("group", group, opened)[1] == pytest.approx(before[1], abs=0.01)
    assert page.evaluate(IS_WHOLE)


def test_double_click_opens_a_group(open_page):
    scene = recordings.plain()
    stage = Stage(open_page(), scene)
    opened = first_open(scene)
    group = closed_groups(scene, opened)[0]
    rows = len(stage.tree())
    x, y = stage.point_of("group", group, opened)
    stage.page.mouse.dblclick(x + 30, y)
    stage.settle()
    assert stage.selected()["name"] == scene.groups[group].label
    assert len(stage.tree()) > rows


def test_tree_and_its_keys_are_synchronized_with_the_graph(open_page):
    scene = recordings.plain()
    stage = Stage(open_page(), scene)
    labels = stage.tree()
    assert labels[0] == scene.groups[0].label
    group = closed_groups(scene, first_open(scene))[0]
    label = scene.groups[group].label
    stage.page.click(f".agv-row-label >> text='{label}'")
    assert (stage.selected()["kind"], stage.selected()["name"]) == ("group", label)
    stage.page.focus("[role=tree]")
    stage.page.keyboard.press("ArrowRight")
    stage.page.keyboard.press("ArrowRight")
    inside = stage.selected()
    selected = stage.page.query_selector("[role=treeitem][aria-selected=true]")
    assert selected.get_attribute("aria-posinset") == "1"
    assert inside["name"] != label
    stage.page.keyboard.press("ArrowLeft")
    stage.page.keyboard.press("ArrowLeft")
    assert stage.tree() == labels
    assert stage.selected()["name"] == label


def test_arrow_keys_follow_the_gradient(open_page):
    scene = recordings.plain()
    stage = Stage(open_page(), scene)
    stage.page.focus(".agv-canvas")
    stage.page.keyboard.press("ArrowUp")
    names = [stage.selected()["name"]]
    for _ in range(2):
        stage.page.keyboard.press("ArrowUp")
        names.append(stage.selected()["name"])
    assert names == ["SumBackward0", "SoftmaxBackward0", "AddmmBackward0"]
    stage.page.keyboard.press("ArrowDown")
    assert stage.selected()["name"] == "SoftmaxBackward0"
    stage.page.keyboard.press("Escape")
    assert stage.selected() == {}


def test_enter_opens_the_selected_group(open_page):
    scene = recordings.plain()
    stage = Stage(open_page(), scene)
    group = closed_groups(scene, first_open(scene))[0]
    rows = len(stage.tree())
    stage.page.click(f".agv-row-label >> text='{scene.groups[group].label}'")
    stage.page.focus(".agv-canvas")
    stage.page.keyboard.press("Enter")
    assert len(stage.tree()) > rows
    stage.page.keyboard.press("Enter")
    assert len(stage.tree()) == rows


def test_search_opens_the_groups_of_its_result(open_page):
    scene = recordings.plain()
    stage = Stage(open_page(), scene)
    stage.page.focus(".agv-canvas")
    stage.page.keyboard.press("/")
    stage.page.keyboard.type("relu")
    stage.page.keyboard.press("Enter")
    stage.settle()
    assert stage.selected()["name"] == "ReluBackward0"
    assert "relu" in stage.tree()
    stage.page.keyboard.press("Escape")
    assert stage.page.input_value("input") == ""


def test_wheel_zooms_at_the_pointer_after_the_first_click(open_page):
    scene = recordings.plain()
    stage = Stage(open_page(), scene)
    opened = first_open(scene)
    node = node_named(scene, "SoftmaxBackward0")
    before = stage.point_of("node", node, opened)
    stage.page.mouse.move(*before)
    stage.page.mouse.wheel(0, -300)
    stage.settle()
    camera = stage.page.get_attribute(".agv-canvas", "data-camera")
    stage.click("node", node, opened)
    assert stage.page.get_attribute(".agv-canvas", "data-camera") == camera
    stage.page.mouse.wheel(0, -300)
    stage.page.wait_for_function(
        "(was) => document.querySelector('.agv-canvas').dataset.camera !== was", arg=camera
    )
    assert stage.point_of("node", node, opened) == pytest.approx(before, abs=0.5)


def test_failing_trace_opens_at_its_finding(open_page, picture):
    scene = recordings.failing()
    for theme in ("light", "dark"):
        stage = Stage(open_page(color_scheme=theme), scene)
        finding = scene.findings[0]
        assert stage.page.text_content(".agv-details .agv-card-title") == finding.title
        assert stage.selected()["id"] == scene.nodes[finding.nodes[0]].node_id
        stage.page.screenshot(path=picture(f"failing-{theme}"))
        stage.show("findings")
        assert stage.page.text_content(".agv-finding h3") == finding.title
        assert finding.culprit_text.strip() in stage.page.text_content(".agv-finding .agv-culprit")
        assert stage.page.text_content(".agv-finding .agv-fix") == finding.fix
        stage.page.screenshot(path=picture(f"findings-{theme}"))
        stage.page.click("text=Show in the graph")
        assert stage.page.is_visible(".agv-canvas")


def test_the_table_of_regions_needs_no_scrolling_sideways(open_page):
    scene = recordings.diverging()
    name = "conditional_generation_model.decoder.layers_with_adapters.checkpointed_forward_of_block"
    regions = [
        dataclasses.replace(scene.regions[0], index=at, module=f"{name}_{word}", recomputes=1)
        for at, word in enumerate(("first", "second"))
    ]
    page = open_page(viewport={"width": 1280, "height": 800})
    stage = Stage(page, dataclasses.replace(scene, regions=tuple(regions)))
    stage.show("checkpoint")
    table = page.locator(".agv-regions table")
    assert name in table.text_content()
    widths = table.evaluate("each => [each.scrollWidth, each.parentElement.clientWidth]")
    assert widths[0] <= widths[1]


def test_the_words_above_the_curves_of_a_checkpointed_step_are_apart(open_page):
    page = open_page(viewport={"width": 1280, "height": 900})
    stage = Stage(page, dataclasses.replace(recordings.checkpointed(), findings=()))
    stage.show("checkpoint")
    page.evaluate(TEXTS_OF_CURVES)
    stage.resize({"width": 1290, "height": 900})
    texts = page.evaluate("texts")
    [[_, start, end, y]] = [each for each in texts if each[0] == "backward"]
    for text, left, right, other in texts:
        assert text == "backward" or abs(other - y) > 9 or right < start or left > end


def test_checkpoint_view_marks_the_first_difference_and_n_selects_the_next(open_page, picture):
    scene = recordings.diverging()
    differing = [row for row in scene.diffs if row.status not in {"same", "not_rerun"}]
    for theme in ("light", "dark"):
        stage = Stage(open_page(color_scheme=theme), scene)
        stage.show("checkpoint")
        first = stage.page.text_content(".agv-diff-first")
        assert first[1:].startswith("first difference")
        assert differing[0].recompute_op in first
        stage.page.keyboard.press("n")
        assert stage.page.text_content(".agv-current") == first
        stage.page.keyboard.press("n")
        assert differing[1].recompute_op in stage.page.text_content(".agv-current")
        changed = stage.page.locator(
            ".agv-region-diffs section",
            has_text="State that changed between forward and recomputation",
        )
        names = changed.locator(".agv-change-name").all_text_contents()
        assert names == [f"≠\u00a0{change.name}" for change in scene.changes]
        assert "≠\u00a0self.seen" in names
        assert "this region's forward" in changed.text_content()
        stage.page.screenshot(path=picture(f"checkpoint-{theme}"))


def test_source_line_selects_its_nodes(open_page, picture):
    scene = recordings.plain()
    stage = Stage(open_page(), scene)
    stage.show("source")
    stage.page.screenshot(path=picture("source-light"))
    line = stage.page.locator(".agv-pane-source .agv-source-line", has_text="torch.softmax")
    assert re.search(r"\d B.*\d (µs|ms).*(µs|ms)2$", line.text_content())
    line.locator("button").click()
    lineno = scene.nodes[node_named(scene, "SoftmaxBackward0")].lineno
    assert stage.selected()["location"].endswith(f"recordings.py:{lineno}")


def test_empty_recording_has_instructions(open_page):
    stage = Stage(open_page(), recordings.empty())
    assert "autogradviz.record(" in stage.page.text_content(".agv-empty pre")


def test_theme_follows_the_host(open_page, picture):
    stage = Stage(open_page(color_scheme="light"), recordings.plain())
    look = """(() => {
      const viewer = document.querySelector('.agv');
      return [viewer.dataset.theme, getComputedStyle(viewer).backgroundColor];
    })()"""
    light, dark = ["light", "rgb(255, 255, 255)"], ["dark", "rgb(22, 24, 27)"]
    assert stage.page.evaluate(look) == light
    stage.page.evaluate("document.body.dataset.jpThemeLight = 'false'")
    assert stage.page.evaluate(look) == dark
    stage.page.screenshot(path=picture("graph-dark"))
    stage.page.evaluate("document.body.dataset.jpThemeLight = 'true'")
    assert stage.page.evaluate(look) == light
    stage.page.screenshot(path=picture("graph-light"))
    stage.page.evaluate("delete document.body.dataset.jpThemeLight")
    stage.page.evaluate("document.body.className = 'vscode-dark'")
    assert stage.page.evaluate(look) == dark


def test_narrow_container_has_one_column(open_page, picture):
    page = open_page(viewport={"width": 620, "height": 900})
    stage = Stage(page, recordings.failing())
    page.click(".agv-rail button:has-text('Graph')")
    parts = [stage.page.locator(name) for name in (".agv-outline", ".agv-stage", ".agv-details")]
    boxes = [part.bounding_box() for part in parts]
    assert len({box["x"] for box in boxes}) == 1
    assert boxes[0]["y"] < boxes[1]["y"] < boxes[2]["y"]
    page.screenshot(path=picture("narrow-light"))


def test_only_visible_rows_have_elements(open_page):
    scene = recordings.deep()
    everything = dataclasses.replace(
        scene, groups=tuple(dataclasses.replace(group, open=True) for group in scene.groups)
    )
    stage = Stage(open_page(), everything)
    assert len(scene.nodes) > 500
    assert len(stage.tree()) < 60
    stage.page.focus(".agv-canvas")
    stage.page.keyboard.press("f")
    stage.settle()
    scale = float(stage.page.get_attribute(".agv-canvas", "data-camera").split()[2])
    assert 24 * scale < 8


def test_new_payload_replaces_the_old_one_and_unmounting_cleans_up(open_page):
    stage = Stage(open_page(), recordings.plain())
    packed = base64.b64encode(pack(recordings.failing())).decode()
    stage.page.evaluate(
        """(packed) => change("_payload", new DataView(
             Uint8Array.from(atob(packed), (c) => c.charCodeAt(0)).buffer))""",
        packed,
    )
    stage.page.wait_for_selector(".agv-details .agv-card")
    assert stage.page.locator(".agv-shell").count() == 1
    stage.page.evaluate("unmount()")
    assert stage.page.evaluate("document.body.childElementCount") == 0
    assert set(stage.page.evaluate("Object.values(listeners).map((set) => set.size)")) == {0}


HOSTILE = '</script><img src=x onerror="hacked=1">\'`${hacked=1}\u202eevil\U0001f600<!--'


def hostile(value):
    """Return a copy with every text replaced, except kinds and states."""
    kept = {"kind", "phase", "state", "grad", "status", "confidence"}
    changes = {
        field.name: HOSTILE
        for field in dataclasses.fields(value)
        if isinstance(getattr(value, field.name), str) and field.name not in kept
    }
    return dataclasses.replace(value, **changes)


def hostile_scene():
    scene = recordings.failing()
    tables = (
        "groups",
        "nodes",
        "saved_badges",
        "parameter_badges",
        "findings",
        "regions",
        "diffs",
        "spans",
    )
    tables += ("storages", "storage_events", "module_calls", "changes")
    tables += ("folds", "ribbons", "counted_storages", "unused_parameters")
    regions = recordings.checkpointed().regions[:1]
    unused = recordings.audited().unused_parameters
    scene = dataclasses.replace(scene, regions=regions, unused_parameters=unused)
    changed = {table: tuple(map(hostile, getattr(scene, table))) for table in tables}
    lines = tuple(dataclasses.replace(line, filename=HOSTILE) for line in scene.lines)
    # The view of a comparison would be opened instead of the graph.
    summary = dataclasses.replace(hostile(scene.summary), notices=(HOSTILE,), compared_with="")
    return dataclasses.replace(scene, **changed, lines=lines, summary=summary)


def visit_everything(page):
    for view in views_of(page):
        show_view(page, view)
    show_view(page, "graph")
    page.focus(".agv-canvas")
    page.keyboard.press("/")
    page.keyboard.type("hacked")
    page.wait_for_selector(".agv-result")


def test_hostile_names_execute_nothing(open_page, picture):
    stage = Stage(open_page(), hostile_scene())
    visit_everything(stage.page)
    assert stage.page.evaluate("window.hacked") is None
    assert stage.page.locator(".agv img").count() == 0
    assert stage.page.text_content(".agv-top-bar h2") == HOSTILE
    stage.page.screenshot(path=picture("hostile-light"))


def test_report_works_offline_and_hostile_names_execute_nothing(open_page, tmp_path):
    report = tmp_path / "report.html"
    report.write_text(render_html(hostile_scene(), title=HOSTILE), encoding="utf-8")
    page = open_page()
    page.goto(report.as_uri())
    visit_everything(page)
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    assert page.title() == HOSTILE
