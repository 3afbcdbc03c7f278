"""Saved bytes: graph, tensors, timeline, source, ``show`` and the Python API have the same sums."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache

import pytest
import torch
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as PerfettoTrace
from torch import nn
from training_programs import PROGRAMS

import autogradviz
from autogradviz.analysis.flame_graph import build_flame_rows, build_frames
from autogradviz.analysis.formatting import format_bytes
from autogradviz.cli.show import overview
from autogradviz.events import BackwardEnded
from autogradviz.render.plotly_figures import plot_memory, plot_saved_by_module
from autogradviz.render.terminal_text import as_text


@cache
def trace_of(name):
    return PROGRAMS[name]()


@pytest.fixture(params=sorted(PROGRAMS))
def trace(request):
    return trace_of(request.param)


def sizes_from_saved_tensors(trace):
    """Return saved and recomputed bytes, computed from the list of saved tensors alone."""
    owned = {trace.analysis.tensors[i].storage_id for i in trace.analysis.parameters}
    forward, all_ = {}, {}
    for each in trace.saved_tensors():
        storage_id = each.tensor.storage_id
        elsewhere = each.copied or (each.packed_by == "checkpoint" and not each.is_argument)
        if storage_id is None or storage_id in owned or elsewhere:
            continue
        all_[storage_id] = each.tensor.storage_nbytes
        if each.packed_by != "recompute":
            forward[storage_id] = each.tensor.storage_nbytes
    return sum(forward.values()), sum(all_.values()) - sum(forward.values())


def held_bytes(storages, time_ns):
    return sum(
        each.nbytes
        for each in storages
        for start, end in zip(each.holds[::2], each.holds[1::2], strict=True)
        if start <= time_ns and (end < 0 or end > time_ns)
    )


def test_total_equals_the_sum_over_saved_tensors(trace):
    sizes = trace.saved_bytes()
    assert (sizes.saved, sizes.recomputed) == sizes_from_saved_tensors(trace)
    assert sizes.saved + sizes.recomputed == sizes.released + sizes.held


def test_summary_graph_and_counted_storages_have_the_same_sums(trace):
    sizes, scene = trace.saved_bytes(), trace._scene
    counted, root, s = scene.counted_storages, scene.groups[0], scene.summary
    assert (s.storages, s.saved_nbytes, s.recomputed_nbytes) == (
        sizes.storages,
        sizes.saved,
        sizes.recomputed,
    )
    assert (s.peak_nbytes, s.released_nbytes, s.held_nbytes, s.offloaded_nbytes) == (
        sizes.at_peak,
        sizes.released,
        sizes.held,
        sizes.offloaded,
    )
    assert (root.nbytes, root.recomputed_nbytes, root.peak_nbytes) == (
        sizes.saved,
        sizes.recomputed,
        sizes.at_peak,
    )
    assert len(counted) == sizes.storages
    assert sum(each.nbytes for each in counted if not each.recomputed) == sizes.saved
    assert sum(each.nbytes for each in counted if each.recomputed) == sizes.recomputed
    assert sum(each.nbytes for each in counted if each.at_peak) == sizes.at_peak
    assert sum(each.nbytes for each in counted if each.holds[-1] >= 0) == sizes.released


def test_groups_without_a_common_node_add_up_to_the_storages_that_are_counted(trace):
    scene = trace._scene
    within = defaultdict(set)
    for node in scene.nodes:
        at = node.group
        while at >= 0:
            within[at].add(node.index)
            at = scene.groups[at].parent
    for group in scene.groups[1:]:
        counted = [each for each in scene.counted_storages if each.node in within[group.index]]
        assert group.nbytes == sum(each.nbytes for each in counted if not each.recomputed)
        assert group.recomputed_nbytes == sum(each.nbytes for each in counted if each.recomputed)
        assert group.peak_nbytes == sum(each.nbytes for each in counted if each.at_peak)


def test_peak_is_that_of_the_memory_curve_and_of_the_figures(trace):
    peak, scene = trace.saved_bytes().at_peak, trace._scene
    assert max(trace.analysis.memory.nbytes, default=0) == peak
    assert max((point.nbytes for point in scene.memory), default=0) == peak
    assert max(held_bytes(scene.counted_storages, point.time_ns) for point in scene.memory) == peak
    assert max(plot_memory(trace.analysis).data[-1].y) == peak
    layers = plot_saved_by_module(trace.analysis).data
    assert max(map(sum, zip(*(layer.y for layer in layers), strict=True))) == peak


def test_rows_of_the_tensors_view_have_the_sizes_that_are_counted(trace):
    scene = trace._scene
    sizes = {each.storage_id: each.nbytes for each in scene.counted_storages}
    rows = {each.storage_id: each.nbytes for each in scene.storages}
    assert scene.summary.storage_rows == len(rows)
    assert sizes.items() <= rows.items()


def test_modules_add_up_at_the_peak_in_show(trace):
    sizes, text = trace.saved_bytes(), as_text(overview(trace))
    assert f"{format_bytes(sizes.at_peak)} held at peak" in text
    assert f"{format_bytes(sizes.saved)} saved" in text
    assert (f"{format_bytes(sizes.recomputed)} recomputed" in text) == bool(sizes.recomputed)
    blocks = defaultdict(int)
    for storage in trace.analysis.saved_memory.storages:
        blocks[storage.module] += storage.nbytes * storage.at_peak
    assert sum(blocks.values()) == sizes.at_peak


def test_source_lines_and_flame_graph_have_the_same_sums(trace):
    sizes, scene = trace.saved_bytes(), trace._scene
    frames = build_frames(build_flame_rows(trace.analysis, "memory"))
    assert frames.value == sizes.at_peak
    rows = build_flame_rows(trace.analysis, "memory")
    assert sum(row.value for row in rows) == sizes.at_peak
    in_flame, in_source = defaultdict(int), defaultdict(int)
    for row in rows:
        in_flame[row.place] += row.value
    for each in scene.counted_storages:
        name = each.filename.rpartition("/")[2]
        in_source[f"{name}:{each.lineno}" if name else ""] += each.nbytes * each.at_peak
    assert in_flame == {place: nbytes for place, nbytes in in_source.items() if nbytes}


def test_exports_have_the_numbers_of_the_graph_and_of_the_timeline(trace, tmp_path):
    trace.export(tmp_path / "x.json")
    [graph] = json.loads((tmp_path / "x.json").read_text())["graphs"]
    memory = trace.analysis.saved_memory
    for node in graph["nodes"]:
        attributes = {each["key"]: each["value"] for each in node["attrs"]}
        found = memory.of_nodes({int(node["id"].lstrip("n"))})
        assert int(attributes["saved_nbytes"]) == found.saved + found.recomputed
    read = PerfettoTrace()
    trace.export(tmp_path / "x.pftrace")
    read.ParseFromString((tmp_path / "x.pftrace").read_bytes())
    counters = [p.track_event for p in read.packet if p.HasField("track_event")]
    peak = max((e.counter_value for e in counters if e.type == e.TYPE_COUNTER), default=0)
    assert peak == trace.saved_bytes().at_peak


def test_trace_that_is_read_from_a_file_has_the_same_numbers(trace, tmp_path):
    trace.save(tmp_path / "x.agv")
    assert autogradviz.load(tmp_path / "x.agv").saved_bytes() == trace.saved_bytes()


def test_groups_equal_the_python_api(trace):
    paths = [group.path for group in trace._scene.groups[1:] if group.kind == "module"]
    for group in trace._scene.groups[1:]:
        if group.kind == "module" and paths.count(group.path) == 1:
            sizes = trace.saved_bytes(group.path)
            kept = group.nbytes + group.recomputed_nbytes + group.shared_nbytes
            assert kept == sizes.saved + sizes.recomputed, group.path
            if not group.shared_nbytes:
                assert group.nbytes == sizes.saved, group.path
                assert group.peak_nbytes == sizes.at_peak, group.path


def test_checkpointed_blocks_have_recomputed_bytes():
    sizes = trace_of("checkpointed").saved_bytes()
    group = next(g for g in trace_of("checkpointed")._scene.groups if g.path == "h.0")
    assert sizes.recomputed > sizes.saved > 0
    assert group.recomputed_nbytes > group.nbytes > 0


def test_each_backward_over_a_retained_graph_releases_what_it_recomputed():
    trace = trace_of("retained_checkpoint")
    ends = {event.backward_id: event.seq for event in trace.analysis.log.of(BackwardEnded)}
    runs = {run.recompute_id: run for each in trace.checkpoints() for run in each.recomputations}
    recomputed = [each for each in trace.saved_tensors() if each.packed_by == "recompute"]
    assert len(runs) == 4
    assert {each.recompute_id for each in recomputed} == runs.keys()
    for each in recomputed:
        assert each.saved_seq <= each.released_seq
        assert each.released_seq <= ends[runs[each.recompute_id].backward_id]


def test_offloaded_bytes_are_separate():
    sizes = trace_of("offloaded").saved_bytes()
    assert sizes.offloaded > 100 * sizes.saved


def test_view_counts_with_its_storage_and_once():
    sizes = trace_of("views").saved_bytes()
    rows = {badge.slot: badge.nbytes for badge in trace_of("views")._scene.saved_badges}
    assert set(rows.values()) <= {3200, 64}
    assert sizes.saved == 2 * 3200 + 64


@pytest.mark.parametrize("name", ["failing", "data_write"])
def test_all_views_mark_the_tensor_of_the_finding(name):
    trace = trace_of(name)
    scene, [finding] = trace._scene, trace.diagnose()
    [badge] = [badge for badge in scene.saved_badges if badge.state == "broken"]
    [row] = [row for row in scene.storages if row.state == "broken"]
    owner, slot = scene.nodes[badge.node].name, badge.slot
    assert owner in str(finding)
    assert slot in str(finding)
    assert row.slots[0] == f"{owner}.{slot}"
    assert row.storage_id == badge.storage_id
    assert row.node == badge.node
    harmful = [each for each in scene.storage_events if each.kind == "written" and not each.ok]
    assert [each.storage for each in harmful] == [row.index]


def test_data_write_to_a_parameter_has_a_row():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    with autogradviz.record(model) as trace:
        loss = model(torch.rand(2, 4)).mean()
        model[2].weight.data.clamp_(-0.1, 0.1)
        loss.backward()
    scene = trace._scene
    [row] = [row for row in scene.storages if row.state == "broken"]
    assert row.name == "2.weight"
    assert [e.kind for e in scene.storage_events if e.storage == row.index and not e.ok] == [
        "written"
    ]


def test_write_that_a_clone_protected_did_no_harm():
    scene = trace_of("mutation_allowed")._scene
    assert {"cloned", "written"} <= {each.kind for each in scene.storage_events}
    assert all(each.ok for each in scene.storage_events)
    assert {row.state for row in scene.storages} == {"released"}
    assert {badge.state for badge in scene.saved_badges} == {"released"}


@pytest.mark.parametrize("name", ["resnet", "unet"])
def test_in_place_writes_of_healthy_steps_are_not_marked(name):
    scene = trace_of(name)._scene
    assert any(node.wrote for node in scene.nodes)
    assert not any(node.writes or node.error for node in scene.nodes)
    assert all(each.ok for each in scene.storage_events)
