"""Snapshots of PyTorch's CUDA allocator read beside recordings; a stand-in allocates on the CPU."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from stand_in_allocator import StandInAllocator
from torch import nn
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz.errors import MemorySnapshotError
from autogradviz.events import RecorderFailed, StorageAddressSeen
from autogradviz.recorder.saved_tensors import (
    addresses_for_memory_snapshots as addresses_of_saved_storages,
)

PREFIX = "autogradviz: "


class Net(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.up, self.down = nn.Linear(8, width), nn.Linear(width, 8)

    def forward(self, x):
        hidden = torch.tanh(self.up(x))
        return self.down(hidden)


def record(step, model, **options):
    """Record a step in the stand-in; return trace and snapshot."""
    older = [tensor for tensor in model.parameters() if tensor is not None]
    with StandInAllocator(*older, **options) as allocator:
        with autogradviz.record(model, annotate_memory=True) as trace:
            kept = step()
        snapshot = allocator.snapshot()
    assert trace.log.of(RecorderFailed) == ()
    del kept
    return trace, snapshot


def annotations(trace, snapshot):
    """Return (text, bytes) of each annotation."""
    traces = trace.annotate_memory_snapshot(snapshot)["device_traces"]
    return [
        (entry["user_metadata"].removeprefix(PREFIX), entry["size"])
        for entry in traces[0]
        if entry["action"] == "annotate"
    ]


def saved_rows(reconciliation):
    return [row for row in reconciliation.rows if row.role == "saved"]


def line_of(statement):
    """Return the number of the one line of this file that begins with a statement."""
    with open(__file__, encoding="utf-8") as file:
        (found,) = [n for n, line in enumerate(file, 1) if line.strip().startswith(statement)]
    return found


# --- programs ---------------------------------------------------------------------------------


def test_saved_bytes_of_a_step_are_those_of_the_allocator():
    model = Net()
    trace, snapshot = record(lambda: model(torch.rand(32, 8)).sum().backward(), model)
    table = trace.reconcile_memory_snapshot(snapshot)
    hidden = 32 * 64 * 4
    (row,) = [row for row in saved_rows(table) if row.allocated == hidden]
    assert (row.module, row.allocations, row.recorded) == ("Net", 1, hidden)
    assert row.line == f"{__file__}:{line_of('hidden = torch.tanh(self.up(x))')}"
    assert row.slots == "TanhBackward0.result, AddmmBackward0.mat1"
    sizes = trace.saved_bytes()
    assert sum(row.recorded for row in saved_rows(table)) == sizes.at_peak
    assert all(row.allocated == row.recorded for row in table.rows if row.role)
    parameters = [row for row in table.rows if row.role == "parameter"]
    assert sum(row.allocated for row in parameters) == 4 * sum(
        p.numel() for p in model.parameters()
    )
    assert table.missing == 0


def test_recomputed_tensors_and_arguments_of_checkpoint_are_explained():
    model = Net()

    def step():
        x = torch.rand(32, 8, requires_grad=True)
        checkpoint(model, x * 2, use_reentrant=False).sum().backward()

    trace, snapshot = record(step, model)
    found = dict(annotations(trace, snapshot))
    hidden = 32 * 64 * 4
    assert any("argument of a checkpoint region" in text for text in found)
    (text,) = [text for text, nbytes in found.items() if nbytes == hidden and "saved" in text]
    assert "TanhBackward0.result" in text
    assert "test_memory_snapshots.py:" in text


def test_memory_that_is_used_again_belongs_to_its_own_step():
    model = Net()

    def steps():
        for _ in range(5):
            model(torch.rand(32, 8)).sum().backward()
            torch.rand(32, 64).sum()  # of the same size, saved by nothing

    trace, snapshot = record(steps, model)
    hidden = 32 * 64 * 4
    alloc = [e for e in snapshot["device_traces"][0] if e["action"] == "alloc"]
    assert len([e for e in alloc if e["size"] == hidden]) >= 15  # linear, tanh, rand
    saved = [text for text, nbytes in annotations(trace, snapshot) if nbytes == hidden]
    assert len(saved) == 5
    assert len({e["addr"] for e in alloc if e["size"] == hidden}) < len(alloc)


def test_snapshot_before_backward_shows_what_the_graph_keeps():
    model = Net()
    trace, snapshot = record(lambda: model(torch.rand(32, 8)).sum(), model)
    table = trace.reconcile_memory_snapshot(snapshot, moment="end")
    assert sum(row.allocated for row in saved_rows(table)) == trace.saved_bytes().held > 0
    without = {**snapshot, "device_traces": []}  # no history: the sizes decide
    table = trace.reconcile_memory_snapshot(without, moment="end")
    assert sum(row.allocated for row in saved_rows(table)) == trace.saved_bytes().held


def test_memory_that_no_graph_keeps_is_named_by_the_line_that_allocated_it():
    model, cache = Net(), []

    def step():
        model(torch.rand(32, 8)).sum().backward()
        cache.append(torch.full((1000,), 2.0))

    trace, snapshot = record(step, model)
    table = trace.reconcile_memory_snapshot(snapshot, moment="end")
    rows = [row for row in table.rows if not row.role and row.allocated == 4000]
    assert [row.line for row in rows] == [f"{__file__}:{line_of('cache.append(torch.full')}"]
    assert table.unexplained >= 4000
    assert "not in the recording" in str(table)


def test_storage_that_two_nodes_save_counts_once():
    model = Net()

    def step():
        x = torch.rand(50, 8, requires_grad=True).exp()
        return (x.sin() + x.cos()).sum()

    trace, snapshot = record(step, model)
    (row,) = [
        row
        for row in saved_rows(trace.reconcile_memory_snapshot(snapshot, moment="end"))
        if "SinBackward0" in row.slots
    ]
    assert row.slots == "ExpBackward0.result, SinBackward0.self, CosBackward0.self"
    assert (row.allocations, row.allocated) == (1, 1600)


def test_tensors_are_annotated_at_once_where_pytorch_can(monkeypatch):
    calls = []

    def annotate(tensor, metadata):
        calls.append((tensor.untyped_storage().nbytes(), metadata))

    monkeypatch.setattr(torch.cuda.memory, "_annotate_tensor", annotate, raising=False)
    monkeypatch.setattr(addresses_of_saved_storages, "_is_on_cuda", lambda _: True)
    model = Net()
    with autogradviz.record(model):
        model(torch.rand(32, 8)).sum().backward()
    assert calls == []  # not on request
    with autogradviz.record(model, annotate_memory=True) as trace:
        model(torch.rand(32, 8)).sum().backward()
    assert trace.log.of(RecorderFailed) == ()
    assert all(text.startswith(PREFIX) for _, text in calls)
    (text,) = [text for nbytes, text in calls if nbytes == 32 * 64 * 4]
    line = line_of("return self.down(hidden)")  # the newest node that saved it
    assert text == f"{PREFIX}AddmmBackward0.mat1, down, test_memory_snapshots.py:{line}"


# --- look-alikes ------------------------------------------------------------------------------


def test_without_a_graph_nothing_is_saved():
    model = Net()

    def step():
        with torch.no_grad():
            return model(torch.rand(32, 8))

    trace, snapshot = record(step, model)
    assert saved_rows(trace.reconcile_memory_snapshot(snapshot)) == []
    assert all(text.startswith("parameter") for text, _ in annotations(trace, snapshot))


def test_tensor_that_hooks_copied_is_not_in_its_place():
    model = Net()

    def step():
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t: t.numpy(force=True).copy(), torch.from_numpy
        ):
            model(torch.rand(32, 8)).sum().backward()

    trace, snapshot = record(step, model)
    hidden = [n for text, n in annotations(trace, snapshot) if text.startswith("saved")]
    assert 32 * 64 * 4 not in hidden


def test_history_of_another_time_is_not_matched():
    model = Net()
    trace, snapshot = record(lambda: model(torch.rand(32, 8)).sum().backward(), model)
    earlier = copy.deepcopy(snapshot)
    for entry in earlier["device_traces"][0]:
        entry["time_us"] -= 3_600_000_000
    assert not any(text.startswith("saved") for text, _ in annotations(trace, earlier))


def test_history_whose_beginning_is_lost_does_not_invent_owners():
    model = Net()

    def steps():
        for _ in range(4):
            model(torch.rand(32, 8)).sum().backward()

    trace, snapshot = record(steps, model, max_entries=12)
    last = snapshot["device_traces"][0][0]["time_us"]
    for text, _ in annotations(trace, snapshot):
        assert not text.startswith("saved") or last is not None
    full = [text for text, _ in annotations(trace, snapshot) if text.startswith("saved")]
    assert len(full) <= 4  # at most those of the last step


def test_block_at_a_freed_address_without_history_is_not_matched():
    model = Net()
    trace, _ = record(lambda: model(torch.rand(32, 8)).sum().backward(), model)
    (event,) = [
        event
        for event in trace.log.of(StorageAddressSeen)
        if event.role == "saved" and trace.analysis.tensors[event.tensor_id].shape == (32, 64)
    ]
    block = {"size": 8192, "requested_size": 8192, "state": "active_allocated", "frames": []}
    segment = {"device": 0, "address": event.address, "total_size": 8192, "blocks": [block]}
    table = trace.reconcile_memory_snapshot({"segments": [segment]}, moment="end")
    assert [(row.role, row.allocated) for row in table.rows] == [("", 8192)]


class _Harm:
    def __reduce__(self):
        return pytest.fail, ("the file was executed",)


def test_file_is_read_and_not_executed(tmp_path):
    model = Net()
    trace, snapshot = record(lambda: model(torch.rand(32, 8)).sum(), model)
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(snapshot))
    before = copy.deepcopy(snapshot)
    annotated = trace.annotate_memory_snapshot(path)
    assert annotated == trace.annotate_memory_snapshot(snapshot)
    assert snapshot == before
    assert trace.annotate_memory_snapshot(annotated) == annotated  # a second time
    for content in (pickle.dumps({"segments": [], "x": _Harm()}), b"no pickle", pickle.dumps([1])):
        path.write_bytes(content)
        with pytest.raises(MemorySnapshotError):
            trace.annotate_memory_snapshot(path)
    with pytest.raises(MemorySnapshotError):
        trace.reconcile_memory_snapshot({"segments": [{"blocks": 3}]})


def test_recording_without_addresses_says_so():
    with autogradviz.record() as trace:
        torch.rand(3, requires_grad=True).exp().sum().backward()
    assert trace.log.of(StorageAddressSeen) == ()
    with pytest.raises(MemorySnapshotError, match="annotate_memory=True"):
        trace.reconcile_memory_snapshot({"segments": []})


def test_lazy_clones_stay_lazy_and_gradients_are_those_without():
    def step():
        torch.manual_seed(0)
        x = torch.rand(20, requires_grad=True)
        lazy = torch._lazy_clone(x.detach())
        (x * lazy).exp().sum().backward()
        return x.grad, torch._C._is_cow_tensor(lazy)

    plain, was_lazy = step()
    with autogradviz.record(annotate_memory=True) as trace:
        recorded, is_lazy = step()
    assert torch.equal(plain, recorded)
    assert was_lazy == is_lazy
    assert trace.log.of(StorageAddressSeen)


def test_addresses_survive_a_file(tmp_path):
    model = Net()
    trace, snapshot = record(lambda: model(torch.rand(32, 8)).sum(), model)
    trace.save(tmp_path / "step.agv")
    loaded = autogradviz.load(tmp_path / "step.agv")
    assert loaded.reconcile_memory_snapshot(snapshot) == trace.reconcile_memory_snapshot(snapshot)
