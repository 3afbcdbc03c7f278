"""Two recordings in one viewer: alignment by module and line, and sums that agree."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections import Counter

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz.cli.entry_point import main
from autogradviz.scene.payload import to_payload


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)
        self.act = nn.GELU()

    def forward(self, x):
        return x + self.down(self.act(self.up(x)))


class Net(nn.Module):
    def __init__(self, *, changed):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.changed = changed
        if changed:
            self.blocks[1].act = nn.ReLU()

    def forward(self, x):
        for block in self.blocks[:2]:
            x = block(x)
        if self.changed:
            return checkpoint(self.blocks[2], x, use_reentrant=False)
        return self.blocks[2](x)


def record(*, changed):
    torch.manual_seed(0)
    model, x = Net(changed=changed), torch.rand(4, 8)
    with autogradviz.record(model) as trace:
        loss = model(x).square().sum()
        if changed:
            model.blocks[0].up.bias.data.add_(1)  # a write that the version counter misses
        loss.backward()
    return trace


@pytest.fixture(scope="module")
def traces():
    return record(changed=False), record(changed=True)


@pytest.fixture(scope="module")
def scenes(traces):
    return autogradviz.compare(*traces)._scenes()


def rows_of(scene, *, merged, **fields):
    return [
        row
        for row in scene.comparison_rows
        if row.merged == merged and all(getattr(row, k) == v for k, v in fields.items())
    ]


def test_totals_are_those_of_the_other_views(traces, scenes):
    for merged in (True, False):
        [total] = rows_of(scenes[1], merged=merged, kind="total")
        sizes = [trace.saved_bytes() for trace in traces]
        assert total.saved == tuple(each.saved for each in sizes)
        assert total.recomputed == tuple(each.recomputed for each in sizes)
        assert total.at_peak == tuple(each.at_peak for each in sizes)
        assert total.nodes == tuple(len(scene.nodes) for scene in scenes)
        lines = rows_of(scenes[1], merged=merged, kind="line")
        for side in (0, 1):
            assert sum(row.saved[side] for row in lines) == total.saved[side]
            assert sum(row.time_ns[side] for row in lines) == total.time_ns[side] > 0


def test_a_line_has_the_time_of_the_source_view_without_the_cold_step():
    recordings = []
    for count in (1, 3):
        model, x = Net(changed=True), torch.rand(4, 8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with autogradviz.record(model) as trace:
            for _ in range(count):
                model(x).square().sum().backward()
                optimizer.step()
        recordings.append(trace)
    _, scene = autogradviz.compare(*recordings)._scenes()
    [phase, *_] = rows_of(scene, merged=True, kind="phase")
    assert (phase.steps, phase.left_out) == ((1, 2), (0, 1))
    for merged in (True, False):
        lines = rows_of(scene, merged=merged, kind="line")
        for side, trace in enumerate(recordings):
            in_source, in_comparison = Counter(), Counter()
            of_frames = [frame.lineno for frame in trace._viewer_scene.call_frames]
            for time in trace._viewer_scene.call_times:
                if time.step == 0 and side:
                    continue
                in_source[of_frames[time.origin] if time.origin >= 0 else 0] += time.ns
            for row in lines:
                in_comparison[row.lines[side]] += row.time_ns[side]
            assert +in_comparison == in_source
            assert len(in_source) >= 4


def test_rows_say_what_is_only_in_one_recording_and_what_changed(traces, scenes):
    rows = {row.module: row for row in rows_of(scenes[1], merged=False, kind="module")}
    assert rows["blocks.1.act"].status == "changed"
    [line] = rows_of(scenes[1], merged=False, kind="line", module="blocks.1.act")
    assert line.other_nodes == "−GeluBackward0, +ReluBackward0"  # noqa: RUF001  a minus
    assert rows["blocks.2"].recomputed[0] == 0 < rows["blocks.2"].recomputed[1]
    assert rows["blocks.2"].saved[0] > rows["blocks.2"].saved[1]
    kinds = {row.status for row in rows_of(scenes[1], merged=True, kind="line")}
    assert kinds == {"same", "changed", "added"}
    _, swapped = autogradviz.compare(*reversed(traces))._scenes()
    kinds = {row.status for row in rows_of(swapped, merged=True, kind="line")}
    assert kinds == {"same", "changed", "removed"}
    merged = [row.module for row in rows_of(scenes[1], merged=True, kind="module")]
    assert merged == ["blocks.*", "blocks.*.up", "blocks.*.act", "blocks.*.down"]
    node = rows["blocks.1.act"].first_nodes
    names = [scene.nodes[at].name for scene, at in zip(scenes, node, strict=True)]
    assert names == ["GeluBackward0", "ReluBackward0"]


def test_an_edited_line_with_the_same_nodes_is_the_same_line():
    def one(x):
        return x.exp().sum()

    def other(x):
        return torch.exp(x).sum()

    recordings = []
    for function in (one, other):
        with autogradviz.record() as trace:
            function(torch.rand(3, requires_grad=True)).backward()
        recordings.append(trace)
    _, scene = autogradviz.compare(*recordings)._scenes()
    lines = [row for row in rows_of(scene, merged=True, kind="line") if row.nodes != (0, 0)]
    assert [(row.label, row.status) for row in lines] == [("return torch.exp(x).sum()", "same")]
    assert lines[0].lines[0] < lines[0].lines[1]


def test_equal_recordings_differ_in_times_only(traces):
    before, _ = autogradviz.compare(traces[0], traces[0])._scenes()
    assert {row.status for row in before.comparison_rows} == {"same"}
    assert before.summary.is_before
    assert [each.kind for each in before.compared_texts] == []


def test_norm_of_a_module_is_that_of_all_its_gradients(traces, scenes):
    [row] = rows_of(scenes[1], merged=False, kind="module", module="blocks.0.up")
    leaves = [node.parameter for node in traces[0].analysis.graph.nodes.values()]
    norms = [leaf.norm for leaf in leaves if leaf and leaf.name.startswith("blocks.0.up.")]
    assert len(norms) == 2
    assert row.norm_before == pytest.approx(sum(norm**2 for norm in norms) ** 0.5)


def test_report_and_widget_contain_both_recordings(traces, scenes, tmp_path):
    comparison = autogradviz.compare(*traces)
    widget = comparison.widget()
    assert widget._before
    assert widget._payload
    for trace, name in zip(traces, ("a.agv", "b.agv"), strict=True):
        trace.save(tmp_path / name)
    page = tmp_path / "page.html"
    files = [str(tmp_path / name) for name in ("a.agv", "b.agv")]
    assert main(["html", "--compare", *files, "-o", str(page)]) == 0
    text = page.read_text()
    assert "<title>a.agv → b.agv</title>" in text
    found = re.search(r'id="before">(.*?)</script>', text)
    assert found
    summary = json.loads(zlib.decompress(base64.b64decode(found[1])))["summary"]
    assert (summary["title"], summary["compared_with"]) == ("a.agv", "b.agv")
    assert len(to_payload(scenes[1])["comparison_rows"]["status"]) == len(scenes[1].comparison_rows)
    assert main(["html", "-o", str(page)]) != 0
    with pytest.raises(autogradviz.RecordingStateError):
        autogradviz.Comparison(()).widget()
