"""The memory view and the comparison of two recordings, in a browser."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import recordings
from viewer_page import Stage, serve_sources

import autogradviz
from autogradviz.analysis.formatting import format_bytes
from autogradviz.scene.payload import to_payload

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from training_programs import PROGRAMS

MINUS = "\N{MINUS SIGN}"


@pytest.fixture(scope="module")
def traces():
    return PROGRAMS["transformer"](), PROGRAMS["checkpointed"]()


def result_of(page):
    pane = page.locator(".agv-pane-memory .agv-panel-details")
    names = pane.locator("dt").all_text_contents()
    return dict(zip(names, pane.locator("dd").all_text_contents(), strict=True))


def test_prediction_of_a_choice_is_that_of_python(open_page, traces):
    trace = traces[0]
    stage = Stage(open_page(), trace._scene)
    stage.show("memory")
    page = stage.page
    before = result_of(page)
    assert before["held at peak"] == format_bytes(trace.saved_bytes().at_peak)
    for label in ("checkpoint h.*.attn", "offload h.*.mlp"):
        page.get_by_role("button", name=label, exact=True).click()
    prediction = trace.predict_memory(checkpoint="h.*.attn", offload="h.*.mlp")
    shown = result_of(page)
    assert shown["predicted"] == format_bytes(prediction.predicted_peak)
    assert shown["freed"].startswith(format_bytes(prediction.freed))
    assert shown["copied"].startswith(format_bytes(prediction.copied))
    code = page.locator(".agv-pane-memory code").last.text_content()
    assert code == 'trace.predict_memory(checkpoint=["h.*.attn"], offload=["h.*.mlp"])'
    page.get_by_role("button", name="offload h.*.mlp", exact=True).click()
    assert "copied" not in result_of(page)


def test_modules_that_free_nothing_are_listed_on_demand(open_page, traces):
    stage = Stage(open_page(), traces[0]._scene)
    stage.show("memory")
    page = stage.page
    freed = page.locator(".agv-memory .agv-panel-table tbody td:nth-child(3)")
    shown = freed.all_text_contents()
    assert shown
    assert not [text for text in shown if text == "0 B" or text[0] == MINUS]
    page.get_by_role("button", name="alone would free nothing").click()
    rest = freed.all_text_contents()[len(shown) :]
    assert rest
    assert all(text == "0 B" or text[0] == MINUS for text in rest)


def test_frames_add_up_and_select_what_they_stand_for(open_page, traces):
    stage = Stage(open_page(), traces[1]._scene)
    stage.show("memory")
    page = stage.page
    peak = format_bytes(traces[1].saved_bytes().at_peak)
    assert page.locator(".agv-frame-root").text_content() == f"total{peak}"
    page.locator(".agv-frame-module", has_text="h.*").first.click()
    assert stage.selected()["kind"] == "group"
    leaf = page.locator(".agv-frame-leaf").first
    leaf.click()
    assert stage.selected()["kind"] == "tensor"
    page.locator(".agv-frame-root").click()
    page.get_by_role("button", name="time", exact=True).last.click()
    phases = page.locator(".agv-frame-phase span:first-child").all_text_contents()
    assert phases == ["forward", "backward", "recompute"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_comparison_violates_no_rule_of_axe(open_page, axe, traces, tmp_path, picture, scheme):
    report = tmp_path / "comparison.html"
    autogradviz.compare(*traces).html(report)
    page = open_page(bypass_csp=True, color_scheme=scheme)
    page.goto(report.as_uri())
    page.wait_for_selector(".agv-compare tbody tr")
    page.evaluate(axe)
    script = "axe.run(document).then((found) => found.violations.map((each) => each.id))"
    assert page.evaluate(script) == []
    page.screenshot(path=picture(f"compare-{scheme}"))


@pytest.mark.parametrize("width", [1280, 680, 360])
def test_no_panel_of_a_comparison_covers_another(open_page, traces, tmp_path, width):
    report = tmp_path / "comparison.html"
    autogradviz.compare(*traces).html(report)
    page = open_page(viewport={"width": width, "height": 720})
    page.goto(report.as_uri())
    page.wait_for_selector(".agv-compare tbody tr")
    height = "e => e.getBoundingClientRect().top + e.scrollHeight"
    end = page.locator(".agv-totals").evaluate(height)
    assert end <= page.locator(".agv-compare .agv-panel-table").bounding_box()["y"] + 1
    words = page.locator(".agv-compare tbody").inner_text()
    assert " →" in words
    assert "0 ns" not in words


@pytest.mark.parametrize("width", [680, 360])
def test_flame_graph_is_entire_in_a_narrow_viewer(open_page, traces, width):
    stage = Stage(open_page(viewport={"width": width, "height": 720}), traces[0]._scene)
    stage.show("memory")
    stage.settle()
    rows = stage.page.locator(".agv-flame")
    assert rows.evaluate("e => e.scrollHeight - e.clientHeight") == 0


def test_comparison_opens_first_and_switches_between_recordings(open_page, traces, tmp_path):
    report = tmp_path / "comparison.html"
    autogradviz.compare(*traces).html(report)
    page = open_page()
    page.goto(report.as_uri())
    page.wait_for_selector(".agv-compare tbody tr")
    sizes = [format_bytes(trace.saved_bytes().at_peak) for trace in traces]
    assert " → ".join(sizes) in page.locator(".agv-totals").text_content()
    assert f"{sizes[1]} held at peak" in page.locator(".agv-top-bar").text_content()
    page.locator(".agv-compare").get_by_role("button", name="before").click()
    page.wait_for_function(
        "text => document.querySelector('.agv-top-bar').textContent.includes(text)",
        arg=f"{sizes[0]} held at peak",
    )
    page.locator(".agv-compare tbody tr").nth(1).click()
    page.wait_for_selector(".agv-pane-graph:not([hidden])")
    canvas = page.locator(".agv-canvas").first
    plain = canvas.evaluate("canvas => canvas.toDataURL()")
    page.select_option(".agv-menu select", "change")
    words = page.locator(".agv-color-scale").inner_text().split("\n")
    assert words == ["change", "same", "time", "bytes or nodes", "only here"]
    page.wait_for_function(
        "args => args[0].toDataURL() !== args[1]", arg=[canvas.element_handle(), plain]
    )


ROWS = """
async (payload) => {
  const { toScene } = await import("http://viewer.test/payload/decode.js");
  const { predictMemory } = await import("http://viewer.test/scene/predict_memory.js");
  const { moduleRows } = await import("http://viewer.test/views/memory/what_if.js");
  const scene = toScene(payload);
  const before = predictMemory(scene, new Map());
  return moduleRows(scene, before).map(({ modules, nbytes }) => {
    const chosen = new Map(modules.map((module) => [module, "offload"]));
    return [modules, nbytes, before.peak - predictMemory(scene, chosen).peak];
  });
}
"""


@pytest.mark.parametrize("kind", ["plain", "compiled", "retained"])
def test_modules_hold_at_the_peak_what_they_could_free(open_page, kind):
    page = open_page()
    serve_sources(page)
    rows = page.evaluate(ROWS, to_payload(getattr(recordings, kind)()))
    assert rows
    for modules, held, freed in rows:
        assert held > 0
        assert freed <= held, modules


def test_difference_has_a_sentence_both_folds_and_lines_in_two_columns(
    open_page, traces, tmp_path, picture
):
    before, after = traces
    report = tmp_path / "compare.html"
    autogradviz.compare(before, after).html(report)
    page = open_page(viewport={"width": 1440, "height": 900})
    page.goto(report.as_uri())
    page.wait_for_selector(".agv-two-folds:not([hidden])")
    peaks = [format_bytes(trace.saved_bytes().at_peak) for trace in traces]
    sentence = page.text_content(".agv-difference")
    assert sentence.endswith(f"{peaks[0]} → {peaks[1]} at the peak.")
    assert "The same ops" in sentence or "differ" in sentence
    titles = page.locator(".agv-two-fold > .agv-muted").all_text_contents()
    assert [peak in title for peak, title in zip(peaks, titles, strict=True)] == [True, True]
    assert ["dashed" in title for title in titles] == [False, True]
    page.click("button:text-is('source')")
    values = page.locator(".agv-two-line .agv-two-value").all_text_contents()
    assert len(values) % 2 == 0
    first, second = values[::2], values[1::2]
    codes = page.locator(".agv-two-line > code").all_text_contents()
    both = [bool(left and right) for left, right in zip(codes[::2], codes[1::2], strict=True)]
    assert any(both)
    for left, right, in_both in zip(first, second, both, strict=True):
        assert left != right or not in_both
    page.screenshot(path=picture("compare-source"))


def test_steps_are_compared_with_their_folds(open_page):
    scene = recordings.running_sum()
    stage = Stage(open_page(viewport={"width": 1440, "height": 900}), scene)
    stage.show("compare")
    page = stage.page
    assert "in both steps" in page.text_content(".agv-difference")
    for at, title in enumerate(page.locator(".agv-two-fold > .agv-muted").all_text_contents()):
        step = len(scene.steps) - 2 + at
        own = [fold.peak_nbytes for fold in scene.folds if fold.step == step and fold.drawn]
        assert title.startswith(f"step {step}")
        assert format_bytes(max(own)) in title
