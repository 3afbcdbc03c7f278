"""The memory view and the comparison of two recordings, in a browser."""

from __future__ import annotations

import contextlib
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import recordings
import torch
from viewer_page import Stage, collect_texts, serve_sources

import autogradviz
from autogradviz.analysis.formatting import format_bytes
from autogradviz.analysis.patch_that_checkpoints_modules import code_that_checkpoints
from autogradviz.scene.payload import to_payload

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from training_programs import PROGRAMS

pytestmark = pytest.mark.one_in(3, reason="opens a page for each view", in_ci=1)

MINUS = "\N{MINUS SIGN}"


@pytest.fixture(scope="module")
def traces():
    return PROGRAMS["transformer"](), PROGRAMS["checkpointed"]()


def sentence_of(page):
    return page.locator(".agv-sentence").text_content().replace("\xa0", " ")


def open_rows(page):
    """Open the rows of the table of what is held, until none is closed."""
    closed = page.locator(".agv-memory tbody button[aria-expanded=false]")
    while closed.count():
        closed.first.click()


def test_prediction_of_a_choice_is_that_of_python(open_page, traces):
    trace = traces[0]
    stage = Stage(open_page(), trace._scene)
    stage.show("memory")
    page = stage.page
    peak = format_bytes(trace.saved_bytes().at_peak)
    assert sentence_of(page).startswith(f"{peak} of saved tensors held at the peak")
    open_rows(page)
    for label in ("checkpoint h.*.attn", "offload h.*.mlp"):
        page.get_by_role("button", name=label, exact=True).click()
    prediction = trace.predict_memory(checkpoint="h.*.attn", offload="h.*.mlp")
    after = format_bytes(prediction.predicted_peak)
    assert f"{peak} → {after} predicted" in sentence_of(page)
    assert f"{format_bytes(prediction.copied)} copied each way" in sentence_of(page)
    code = page.locator(".agv-memory-code code").text_content()
    assert code == 'trace.predict_memory(checkpoint=["h.*.attn"], offload=["h.*.mlp"])'
    page.get_by_role("button", name="offload h.*.mlp", exact=True).click()
    assert "copied" not in sentence_of(page)
    # What is checkpointed has the code to paste, which is that of the budget for one of its plans.
    page.get_by_role("button", name="checkpoint h.*.attn", exact=True).click()
    page.get_by_role("button", name="checkpoint h.*", exact=True).click()
    plan = next(each for each in trace._scene.budget_plans if each.name == "h.*")
    code = page.locator(".agv-memory-code pre")
    assert code.locator(".agv-patch-new").text_content() == f"+ {plan.after.strip()}"
    page.get_by_role("button", name="checkpoint h.*", exact=True).click()
    page.get_by_role("button", name="checkpoint h.*.ln_2", exact=True).click()
    modules = trace.analysis.modules.values()
    names = [each.name for each in modules if re.fullmatch(r"h\.\d+\.ln_2", each.name)]
    assert names not in [[*each.modules] for each in trace._scene.budget_plans]
    assert code.text_content() == code_that_checkpoints(trace.analysis, names)


@pytest.mark.parametrize("name", ["transformer", "checkpointed", "retained", "running_sum"])
def test_rows_of_what_is_held_add_up_to_the_peak(open_page, traces, name):
    known = {"transformer": traces[0]._scene, "checkpointed": traces[1]._scene}
    scene = known.get(name) or getattr(recordings, name)()
    page = open_page()
    serve_sources(page)
    rows = page.evaluate(HELD, to_payload(scene))
    peak = scene.summary.peak_nbytes + scene.summary.older_nbytes
    assert sum(row["nbytes"] for row in rows) == peak > 0
    waiting = list(rows)
    while waiting:
        row = waiting.pop()
        if row["kind"] != "older":
            assert sum(nbytes for _, nbytes in row["kinds"]) == row["nbytes"]
        if row["rows"]:
            assert sum(each["nbytes"] for each in row["rows"]) == row["nbytes"]
        waiting += row["rows"]


def test_sentence_on_memory_names_the_module_that_frees_most(open_page, traces):
    stage = Stage(open_page(), traces[0]._scene)
    stage.show("memory")
    freed = traces[0].predict_memory(checkpoint="h.*").freed
    assert f"checkpointing h.* would free {format_bytes(freed)}" in sentence_of(stage.page)


def test_a_step_that_failed_has_no_advice_on_memory(open_page):
    stage = Stage(open_page(), recordings.failing())
    stage.show("memory")
    page = stage.page
    assert page.locator(".agv-memory tbody tr").count()
    assert page.locator(".agv-memory tbody .agv-choice").count() == 0
    assert "checkpointing it" not in page.inner_text(".agv-memory")


def test_all_memory_at_its_peak_is_that_of_the_recording(open_page):
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    with autogradviz.record(model, memory=True) as trace:
        model(torch.ones(32, 64)).sum().backward()
    peak = trace.memory_by_kind().peak
    scene = trace._viewer_scene
    known = {each.kind: each.nbytes for each in scene.live_memory if each.nbytes >= 0}
    assert known == peak.nbytes
    assert [each.kind for each in scene.live_memory if each.nbytes < 0] == ["cpu"]
    stage = Stage(open_page(), scene)
    stage.show("memory")
    words = stage.page.text_content(".agv-memory .agv-difference-more")
    assert words.startswith(f"All memory at its peak: {format_bytes(peak.total)}. ")
    assert words.endswith("Other memory is unknown: PyTorch does not count that of cpu.")
    # The title and the table of all memory are of all memory.
    stage.page.get_by_role("button", name="all memory", exact=True).click()
    assert sentence_of(stage.page).startswith(f"{format_bytes(peak.total)} of memory held at its")
    rows = [
        [cell.text_content() for cell in row.locator("td").all()[:2]]
        for row in stage.page.locator(".agv-memory tbody tr").all()
    ]
    assert ["parameters", format_bytes(peak.nbytes["parameters"])] in rows
    assert ["saved tensors", format_bytes(peak.nbytes["saved"])] in rows
    assert "checkpointing it" not in stage.page.inner_text(".agv-memory")
    assert recordings.plain().live_memory == ()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_memory_chart_lists_all_kinds_below_it(open_page, scheme, picture):
    scene = recordings.plain()
    titles = {each.name: each.title for each in scene.saved_kinds}
    page = open_page(viewport={"width": 420, "height": 800}, color_scheme=scheme)
    collect_texts(page)
    stage = Stage(page, scene)
    stage.show("memory")
    stage.settle()
    places = {each["text"]: each for each in page.evaluate("texts")}
    assert {titles[each.kind] for each in scene.ribbons} <= places.keys()
    page.screenshot(path=picture(f"memory-narrow-{scheme}"))
    place = places[titles[scene.ribbons[0].kind]]
    page.locator(".agv-memory .agv-chart").scroll_into_view_if_needed()
    box = page.locator(".agv-memory .agv-chart").bounding_box()
    page.mouse.click(box["x"] + place["x"] + 5, box["y"] + place["y"])
    selected = next(s for s in scene.storages if s.storage_id == stage.selected()["id"])
    [kind] = {r.kind for r in scene.ribbons for m in r.members
              if scene.counted_storages[m].storage_id == selected.storage_id}  # fmt: skip
    assert kind == scene.ribbons[0].kind


def test_layers_of_all_memory_add_up_to_it_in_each_step(open_page, picture):
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters())
    with autogradviz.record(model, memory=True) as trace:
        for size in (32, 64, 128):
            model(torch.ones(size, 64)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    scene, memory = trace._viewer_scene, trace.memory_by_kind()

    def kinds(point):
        named = [point.parameters, point.optimizer_state, point.gradients, point.saved]
        return [*named, point.other]

    totals = {sum(kinds(point)) for point in scene.live_points}
    # Of many moments, as where other tests left tensors, the scene has those that matter.
    assert totals
    assert totals <= {row.total for row in memory.rows}
    assert {point.saved for point in scene.live_points} <= {
        row.nbytes.get("saved", 0) for row in memory.rows
    }
    page = Stage(open_page(), scene, view="memory").page
    page.get_by_role("button", name="all memory").click()
    for at, step in enumerate(scene.steps):
        page.select_option(".agv-step-menu select", str(at))
        points = [p for p in scene.live_points if step.start_ns < p.time_ns <= step.end_ns]
        highest = max(points, key=lambda point: sum(kinds(point)))
        peak = format_bytes(sum(kinds(highest)))
        assert sentence_of(page).startswith(f"{peak} of memory held at the peak of step {at}, ")
        rows = page.locator(".agv-memory tbody tr").all_text_contents()
        assert f"saved tensors{format_bytes(highest.saved)}" in rows or not highest.saved
        assert f"optimizer state{format_bytes(highest.optimizer_state)}" in rows or at == 0
    page.screenshot(path=picture("memory-all"))


def test_only_the_last_step_has_stopped(open_page):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())
    with (
        contextlib.suppress(RuntimeError),
        autogradviz.record(model) as trace,
    ):
        optimizer = torch.optim.SGD(model.parameters())
        for step in range(3):
            scores = torch.softmax(model(torch.rand(4, 8)), -1)
            if step == 2:
                scores.mul_(0.5)
            scores.square().sum().backward()
            optimizer.step()
    scene = trace._viewer_scene
    assert len(scene.steps) == 3
    stage = Stage(open_page(), scene)
    stage.show("memory")
    page = stage.page
    for at in range(3):
        page.select_option(".agv-step-menu select", str(at))
        assert ("step stopped" in page.text_content(".agv-memory .agv-sentence")) == (at == 2)
    page.click(".agv-rail [data-view=timeline]")
    for at in range(3):
        page.select_option(".agv-step-menu select", str(at))
        text = page.text_content(".agv-pane-timeline .agv-sentence")
        assert (" stopped after " in text) == (at == 2)


def test_rows_select_what_they_stand_for(open_page, traces):
    stage = Stage(open_page(), traces[1]._scene)
    stage.show("memory")
    page = stage.page
    open_rows(page)
    page.locator(".agv-memory-name b").first.click()
    assert stage.selected()["kind"] == "group"
    page.locator(".agv-memory-name code").first.click()
    assert stage.selected()["kind"] == "tensor"


def show_modules(page):
    """Show the table of a comparison instead of the lines that differ."""
    page.locator(".agv-compare").get_by_role("button", name="modules and lines").click()
    page.wait_for_selector(".agv-panel-table tbody tr:visible")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_comparison_violates_no_rule_of_axe(open_page, axe, traces, tmp_path, picture, scheme):
    report = tmp_path / "comparison.html"
    autogradviz.compare(*traces).html(report)
    page = open_page(bypass_csp=True, color_scheme=scheme)
    page.goto(report.as_uri())
    page.evaluate(axe)
    script = "axe.run(document).then((found) => found.violations.map((each) => each.id))"
    page.wait_for_selector(".agv-compare-name")
    page.screenshot(path=picture(f"compare-{scheme}"))
    assert page.evaluate(script) == []
    show_modules(page)
    assert page.evaluate(script) == []


@pytest.mark.parametrize("width", [1280, 680, 360])
def test_no_panel_of_a_comparison_covers_another(open_page, traces, tmp_path, width):
    report = tmp_path / "comparison.html"
    autogradviz.compare(*traces).html(report)
    page = open_page(viewport={"width": width, "height": 720})
    page.goto(report.as_uri())
    page.wait_for_selector(".agv-compare-name")
    height = "e => e.getBoundingClientRect().top + e.scrollHeight"
    end = page.locator(".agv-totals").evaluate(height)
    assert end <= page.locator(".agv-compare .agv-panel-table").bounding_box()["y"] + 1
    show_modules(page)
    words = page.locator(".agv-panel-table tbody:visible").inner_text()
    assert " →" in words
    assert "0 ns" not in words


@pytest.mark.parametrize("width", [680, 420])
def test_each_number_of_a_comparison_has_its_name(open_page, traces, tmp_path, width):
    report = tmp_path / "comparison.html"
    autogradviz.compare(*traces).html(report)
    page = open_page(viewport={"width": width, "height": 720})
    page.goto(report.as_uri())
    page.wait_for_selector(".agv-compare-name")
    names = page.locator(".agv-totals tbody th")
    assert names.first.text_content() == "held at peak"
    assert all(name.is_visible() for name in names.all())
    shown = page.locator(".agv-compare-name code").count()
    heading = page.locator(".agv-compare .agv-panel-table .agv-view-head").text_content()
    assert f"{shown} lines, largest first" in heading


@pytest.mark.parametrize("width", [680, 360])
def test_table_of_what_is_held_fits_a_narrow_viewer(open_page, traces, width):
    stage = Stage(open_page(viewport={"width": width, "height": 720}), traces[0]._scene)
    stage.show("memory")
    stage.settle()
    body = stage.page.locator(".agv-memory .agv-panel-body")
    assert body.evaluate("e => e.scrollWidth - e.clientWidth") <= 0


def test_comparison_opens_first_and_switches_between_recordings(open_page, traces, tmp_path):
    report = tmp_path / "comparison.html"
    autogradviz.compare(*traces).html(report)
    page = open_page()
    page.goto(report.as_uri())
    page.wait_for_selector(".agv-totals")
    sizes = [format_bytes(trace.saved_bytes().at_peak) for trace in traces]
    assert "".join(sizes) in page.locator(".agv-totals").text_content()
    assert f"{sizes[1]} saved tensors at peak" in page.locator(".agv-top-bar").text_content()
    page.locator(".agv-compare").get_by_role("button", name="before").click()
    page.wait_for_function(
        "text => document.querySelector('.agv-top-bar').textContent.includes(text)",
        arg=f"{sizes[0]} saved tensors at peak",
    )
    show_modules(page)
    page.locator(".agv-panel-table tbody tr:visible").nth(1).click()
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
  const { indexScene } = await import("http://viewer.test/scene/scene_index.js");
  const { predictMemory } = await import("http://viewer.test/scene/predict_memory.js");
  const { heldRows } = await import("http://viewer.test/views/memory/rows_held_at_peak.js");
  const scene = toScene(payload);
  const before = predictMemory(scene, new Map());
  const found = [];
  const visit = (rows) => {
    for (const { modules, nbytes, rows: inside } of rows) {
      const chosen = new Map(modules.map((module) => [module, "offload"]));
      const freed = before.peak - predictMemory(scene, chosen).peak;
      if (modules.length) found.push([modules, nbytes, freed]);
      visit(inside);
    }
  };
  visit(heldRows({ scene, sceneIndex: indexScene(scene), step: -1 }));
  return found;
}
"""

HELD = """
async (payload) => {
  const { toScene } = await import("http://viewer.test/payload/decode.js");
  const { indexScene } = await import("http://viewer.test/scene/scene_index.js");
  const { heldRows } = await import("http://viewer.test/views/memory/rows_held_at_peak.js");
  const scene = toScene(payload);
  const plain = ({ kind, nbytes, kinds, rows }) =>
    ({ kind, nbytes, kinds: [...kinds], rows: rows.map(plain) });
  return heldRows({ scene, sceneIndex: indexScene(scene), step: -1 }).map(plain);
}
"""


@pytest.mark.parametrize("kind", ["plain", "checkpointed", "retained"])
def test_modules_hold_at_the_peak_what_they_could_free(open_page, kind):
    page = open_page()
    serve_sources(page)
    rows = page.evaluate(ROWS, to_payload(getattr(recordings, kind)()))
    assert rows
    for modules, held, freed in rows:
        assert held > 0
        assert freed <= held, modules


def test_difference_has_a_sentence_both_folds_and_lines_in_aligned_columns(
    open_page, traces, tmp_path, picture
):
    before, after = traces
    report = tmp_path / "compare.html"
    autogradviz.compare(before, after).html(report)
    page = open_page(viewport={"width": 1440, "height": 900})
    page.goto(report.as_uri())
    page.wait_for_selector(".agv-two-folds:not([hidden])")
    peaks = [format_bytes(trace.saved_bytes().at_peak) for trace in traces]
    again = format_bytes(after.saved_bytes().recomputed)
    sentence = page.text_content(".agv-difference").replace("\xa0", " ")
    assert sentence == (f"{peaks[0]} → {peaks[1]} held at the peak; backward recomputes {again}.")
    assert "same ops until" in page.text_content(".agv-difference-more")
    titles = page.locator(".agv-two-fold > .agv-muted").all_inner_texts()
    titles = [title.replace("\xa0", " ") for title in titles]
    assert [peak in title for peak, title in zip(peaks, titles, strict=False)] == [True, True]
    assert ["dashed" in title for title in titles] == [False, False, True]
    heads = page.locator(".agv-panel-table thead th").all_inner_texts()
    assert heads[1:5] == ["line or module", "held at peak: before", "after", "difference"]
    rows = page.locator(".agv-panel-table tbody tr:has(code)")
    assert rows.count() > 1
    for row in rows.all():
        cells = row.locator("td").all_inner_texts()
        assert cells[2] != cells[3] or "→" in "".join(cells[5:])
        assert ("same" in cells[4]) == (cells[2] == cells[3])
        # The text of a line is whole, and below its name.
        name, head = (each.bounding_box() for each in (row.locator("code"), row))
        assert row.locator("code").evaluate("e => e.scrollWidth <= e.clientWidth")
        assert name["x"] >= head["x"]
    places = "rows => rows.map(r => [...r.cells].map(c => Math.round(c.getBoundingClientRect().x)))"
    of_cells = page.locator(".agv-panel-table tbody tr:has(b, code)").evaluate_all(places)
    assert len({tuple(each) for each in of_cells}) == 1
    page.screenshot(path=picture("compare-source"))


@pytest.mark.parametrize("width", [1280, 420])
def test_bytes_more_and_less_have_bars_that_add_up(open_page, traces, tmp_path, width, picture):
    report = tmp_path / "compare.html"
    autogradviz.compare(*traces).html(report)
    page = open_page(viewport={"width": width, "height": 900})
    page.goto(report.as_uri())
    page.wait_for_selector(".agv-compare-name")
    table = page.locator(".agv-compare .agv-panel-table table")
    modules = table.locator("tbody tr:has(.agv-compare-name b)")
    rows = [[cell.text_content() for cell in row.locator("td").all()[1:5]] for row in modules.all()]
    peaks = [format_bytes(trace.saved_bytes().at_peak) for trace in traces]
    name, *values, difference = rows[0]
    assert (name, values) == ("all", peaks)
    less = traces[0].saved_bytes().at_peak - traces[1].saved_bytes().at_peak
    assert difference == f"−{format_bytes(less)}"  # noqa: RUF001  a minus
    assert not any("*" in row[0] for row in rows)
    bars = modules.locator(".agv-track > span")
    assert bars.count() == len(rows)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.screenshot(path=picture(f"compare-bytes-{width}"))
    modules.first.click()
    page.wait_for_selector(".agv-pane-graph:not([hidden])")


def test_a_warm_up_step_is_named_where_its_times_are_compared(open_page):
    scene = recordings.running_sum()
    scene = replace(scene, summary=replace(scene.summary, warm_up=8.0))
    stage = Stage(open_page(viewport={"width": 1440, "height": 900}), scene)
    stage.show("compare")
    totals = stage.page.locator(".agv-totals")
    assert "warm-up" not in totals.text_content()
    stage.page.get_by_label("First step").select_option("0")
    assert "step 0 is warm-up" in totals.text_content()


def test_times_of_phases_are_those_of_the_timeline(open_page):
    """A phase has one time in all views: that of its spans, without idle intervals."""
    scene = recordings.running_sum()
    stage = Stage(open_page(viewport={"width": 1440, "height": 900}), scene)
    stage.show("compare")
    idle = list(zip(scene.summary.idle_ns[::2], scene.summary.idle_ns[1::2], strict=True))
    rows = stage.page.locator(".agv-phase-row")
    assert rows.count() >= 2
    for row in rows.all():
        kind, *times, _ = row.locator("th, td").all_inner_texts()
        for step, text in zip(scene.steps[-2:], times, strict=True):
            spans = [s for s in scene.spans if s.kind == kind and s.depth == 0]
            # A span may end after its step: its time in the step counts.
            own = [(max(s.start_ns, step.start_ns), min(s.end_ns, step.end_ns)) for s in spans]
            own = [(first, last) for first, last in own if first < last]
            ns = sum(last - first for first, last in own) - sum(
                max(0, min(end, last) - max(start, first))
                for first, last in own
                for start, end in idle
            )
            number, unit = text.split()
            shown = float(number) * {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}[unit]
            assert shown == pytest.approx(ns, rel=0.01)


def test_steps_are_compared_with_their_folds(open_page):
    scene = recordings.running_sum()
    stage = Stage(open_page(viewport={"width": 1440, "height": 900}), scene)
    stage.show("compare")
    page = stage.page
    assert "in both steps" in page.text_content(".agv-difference")
    caption = page.text_content(".agv-totals caption")
    assert caption.startswith("times are of one step each; with 4 steps or more in each")
    assert "Durations" not in page.inner_text(".agv-compare")
    losses = [f"{scene.steps[at].loss:#.3g}" for at in (-2, -1)]
    [loss] = page.locator(".agv-totals tr", has_text="loss").all()
    assert [cell.text_content() for cell in loss.locator("td").all()[:2]] == losses
    *titles, held = page.locator(".agv-two-fold > .agv-muted").all_text_contents()
    assert held.startswith("Held")
    for at, title in enumerate(titles):
        step = len(scene.steps) - 2 + at
        own = [fold.peak_nbytes for fold in scene.folds if fold.step == step and fold.drawn]
        assert title.startswith(f"step {step}")
        assert format_bytes(max(own)) in title.replace("\xa0", " ")
