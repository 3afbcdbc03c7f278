"""The numbers that the views display are those of the Python API."""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from viewer_page import Stage

import autogradviz
from autogradviz.analysis.formatting import format_bytes

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from training_programs import PROGRAMS

pytestmark = pytest.mark.one_in(3, reason="opens a page for each view", in_ci=2)


@pytest.mark.parametrize("name", ["transformer", "checkpointed", "mutation_allowed", "failing"])
def test_views_display_the_sums_of_the_python_api(open_page, name):
    trace = PROGRAMS[name]()
    sizes, stage = trace.saved_bytes(), Stage(open_page(), trace._scene)
    peak = f"{format_bytes(sizes.at_peak)} held at peak"
    figures = stage.page.text_content(".agv-figures")
    assert f"{format_bytes(sizes.at_peak)} saved tensors at peak" in figures
    stage.show("tensors")
    head = stage.page.locator(".agv-pane-tensors .agv-view-head").first.text_content()
    assert peak in head
    assert f"{format_bytes(sizes.saved)} saved" in head
    assert not sizes.recomputed or f"{format_bytes(sizes.recomputed)} recomputed" in head
    stage.show("timeline")
    assert "active" in stage.page.text_content(".agv-pane-timeline")


@pytest.mark.parametrize("name", ["transformer", "checkpointed", "failing"])
def test_no_view_displays_a_value_that_is_missing(open_page, name):
    stage = Stage(open_page(), PROGRAMS[name]()._scene)
    views = stage.views()
    assert {"fold", "tensors", "memory", "source", "graph", "timeline"} <= set(views)
    for view in views:
        stage.show(view)
        text = stage.page.text_content(".agv")
        assert [word for word in ("undefined", "[object", "null", "NaN") if word in text] == []


@pytest.mark.parametrize("name", ["transformer", "checkpointed"])
def test_source_view_displays_the_bytes_of_each_line(open_page, name):
    trace = PROGRAMS[name]()
    stage = Stage(open_page(), trace._scene)
    lines = defaultdict(lambda: [0, 0, 0])
    for each in trace.analysis.saved_memory.storages:
        sums = lines[each.lineno]
        sums[2 if each.recomputed else 0] += each.nbytes
        sums[1] += each.nbytes * each.at_peak
    stage.show("source")
    best = max(lines, key=lambda line: lines[line][1] if line else 0)
    sentence = stage.page.text_content(".agv-source-page .agv-sentence")
    assert f":{best} holds most at the peak, " in sentence
    assert " takes most time, " in sentence
    shown = {}
    for row in stage.page.locator(".agv-source-line[data-line]").all():
        cells = row.locator(".agv-cell").all_text_contents()
        if any(cell for cell in cells[:3] if not cell.startswith("in ")):
            shown[int(row.locator(".agv-source-number").text_content())] = cells[:3]
    # Files that only call others are folded while each line counts by itself.
    files = stage.page.locator(".agv-source-page section")
    assert files.count()
    for file in files.all():
        assert any(file.locator("[data-line] .agv-cell").all_text_contents())
    sizes = trace.saved_bytes()
    total = stage.page.locator(".agv-source-total", has_text="active").locator(".agv-cell")
    values = [sizes.saved, sizes.at_peak, sizes.recomputed]
    assert total.all_text_contents()[:3] == [
        format_bytes(value) if value else "" for value in values
    ]
    expected = {
        line: [format_bytes(value) if value else "" for value in sums]
        for line, sums in lines.items()
        if line
    }
    assert shown == expected


def nanoseconds(text):
    number, unit = text.split()
    return float(number) * {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}[unit]


@pytest.mark.parametrize("name", ["transformer", "checkpointed"])
def test_times_of_lines_and_between_ops_add_up_to_the_active_time(open_page, name):
    stage = Stage(open_page(), PROGRAMS[name]()._scene)
    stage.show("source")
    row = stage.page.locator(".agv-source-total", has_text="active")
    active = nanoseconds(row.locator("code").text_content().split(" · ")[1].removesuffix(" active"))
    times = [
        nanoseconds(text) for text in row.locator(".agv-cell").all_text_contents()[3:8] if text
    ]
    assert sum(times) == pytest.approx(active, rel=0.01)


def save_twice(x):
    y = x.exp()
    return y.sin()


def test_a_line_that_saves_what_another_saved_says_where_it_is_counted(open_page):
    with autogradviz.record() as trace:
        save_twice(torch.rand(4, requires_grad=True)).sum().backward()
    stage = Stage(open_page(), trace._scene)
    stage.show("source")
    line = save_twice.__code__.co_firstlineno + 1
    row = stage.page.locator(".agv-source-line[data-line]", has_text="return y.sin()")
    assert row.locator(".agv-cell").first.text_content() == f"in {line}"
    assert stage.page.locator(".agv-source-page .agv-tint").is_visible()  # what the tint means


def test_cut_tables_say_how_much_they_leave_out(open_page):
    scene = PROGRAMS["transformer"]()._scene
    rows, spans = scene.storages[:20], scene.spans[:50]
    kept = {row.index for row in rows}
    events = tuple(each for each in scene.storage_events if each.storage in kept)
    stage = Stage(open_page(), replace(scene, storages=rows, storage_events=events, spans=spans))
    stage.show("tensors")
    total = f"{scene.summary.storage_rows:,}"
    heads = stage.page.locator(".agv-pane-tensors .agv-view-head").all_text_contents()
    assert f"largest 20 of {total}" in heads[0]
    assert f"{format_bytes(scene.summary.peak_nbytes)} held at peak" in heads[0]
    stage.show("timeline")
    head = stage.page.locator(".agv-pane-timeline .agv-view-head").first.text_content()
    assert f"longest 50 of {scene.summary.spans:,} bars" in head
