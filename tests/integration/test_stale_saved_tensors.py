"""Saved tensors that were written since look stale before backward reaches them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import autogradviz


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(4, 4)

    def forward(self, x):
        g = torch.sigmoid(self.gate(x))
        y = g * x
        g *= 0.5
        return x + y


def failing():
    model = nn.Sequential(Gate(), Gate())
    try:
        with autogradviz.record(model) as trace:
            model(torch.rand(2, 4, requires_grad=True)).sum().backward()
    except RuntimeError:
        pass
    return trace


def test_every_save_of_a_written_storage_shows_both_versions():
    badges = [b for b in failing()._scene.saved_badges if b.state in {"broken", "stale"}]
    assert sorted((b.slot, b.state, b.version, b.seen_version) for b in badges) == [
        ("result", "stale", 0, 1),
        ("result", "stale", 0, 1),
        ("self", "broken", 0, 1),
        ("self", "stale", 0, 1),
    ]
    rows = [(row.state, row.version, row.seen_version) for row in failing()._scene.storages]
    assert rows.count(("stale", 0, 1)) == 1  # of the first gate; the other one failed
    assert rows.count(("broken", 0, 1)) == 1


def test_the_finding_counts_the_saves_that_the_same_line_wrote():
    (finding,) = failing().diagnose()
    assert "The same line wrote 3 more saved tensors that backward needs." in finding.explanation


def test_stale_saves_are_those_that_backward_rejects():
    x = torch.rand(3, requires_grad=True)
    with autogradviz.record() as trace:
        y = x.exp()
        z = x.sin().exp()
        y[:1].mul_(2)
    stale = [each for each in trace.saved_tensors() if each.saved_id in trace.analysis.stale]
    assert [(each.slot, each.tensor.storage_id) for each in stale] == [
        ("result", trace.saved_tensors()[0].tensor.storage_id)
    ]
    z.sum().backward()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_use_that_a_freed_graph_refused_is_an_event_of_what_it_needed():
    x = torch.rand(4, 4, requires_grad=True)
    with autogradviz.record() as trace, pytest.raises(RuntimeError, match="second time"):
        y = x.exp()
        y.sum().backward()
        y.sum().backward()
    assert [each.state for each in trace._scene.storages] == ["released"]  # no error left it
    with pytest.raises(RuntimeError, match="second time"), autogradviz.record() as trace:
        y = x.exp()
        y.sum().backward()
        y.sum().backward()
    [row] = trace._scene.storages
    assert (row.name, row.state) == ("y", "broken")
    *_, released, refused = trace._scene.storage_events
    assert released.kind == "released"
    assert (refused.kind, refused.ok, refused.op) == ("unpacked", False, "released before")
    assert refused.time_ns >= released.time_ns
