"""Saved tensors of compiled forwards, held from the end of the forward on."""

from __future__ import annotations

import pytest
import torch
from fold_bytes import differences
from test_saved_bytes_of_graphs import tensors_in
from torch import nn

import autogradviz
from autogradviz.event_log.step_totals import step_totals
from autogradviz.events import BackwardStarted, OptimizerStepped


def held_by_nodes(loss, model):
    """Return the bytes of the storages that the nodes behind a loss hold, without parameters."""
    owned = {each.untyped_storage()._cdata for each in model.parameters()}
    found, seen, waiting = {}, set(), [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        waiting += [function for function, _ in node.next_functions]
        slots = [getattr(node, name) for name in dir(node) if name.startswith("_raw_saved_")]
        for tensor in tensors_in([*slots, getattr(node, "_tensors_no_vc_check", None)]):
            storage = tensor.untyped_storage()
            if storage._cdata not in owned:
                found[storage._cdata] = storage.nbytes()
    return sum(found.values())


def held_before(trace, seq):
    memory = trace.analysis.memory
    return [n for at, n in zip(memory.seqs, memory.nbytes, strict=True) if at < seq][-1]


@pytest.fixture
def model():
    torch._dynamo.reset()
    yield nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Sigmoid())
    torch._dynamo.reset()


@pytest.mark.parametrize("whole", [True, False])
def test_compiled_forward_holds_what_its_node_holds_before_backward(model, whole):
    def loss_of(x):
        return model(x).exp().sum()

    run = torch.compile(loss_of if whole else model, backend="aot_eager")
    with autogradviz.record(model) as trace:
        loss = run(torch.rand(16, 8)) if whole else run(torch.rand(16, 8)).exp().sum()
        held = held_by_nodes(loss, model)
        loss.backward()
    [start] = trace.analysis.log.of(BackwardStarted)
    assert held_before(trace, start.seq) == held > 0
    assert differences(trace) == []


def test_step_that_ends_between_a_compiled_forward_and_its_backward_has_its_bytes(model):
    run = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD([torch.rand(2, requires_grad=True)])
    other = optimizer.param_groups[0]["params"][0]
    with autogradviz.record(model) as trace:
        loss = run(torch.rand(16, 8)).sum()
        held = held_by_nodes(loss, model)
        other.square().sum().backward()
        optimizer.step()
        loss.backward()
        optimizer.step()
    [first, _] = trace.analysis.log.of(OptimizerStepped)
    assert held_before(trace, first.seq) == held > 0
    totals = step_totals(trace.log)
    assert totals.saved_nbytes[0] >= held
    assert differences(trace) == []


def test_what_a_region_saved_before_the_recording_is_held_from_its_beginning(model):
    run = torch.compile(model, backend="aot_eager")
    loss = run(torch.rand(16, 8)).sum()
    held = held_by_nodes(loss, model)
    with autogradviz.record(model) as trace:
        torch.rand(2, requires_grad=True).exp()
        loss.backward()
    [start] = trace.analysis.log.of(BackwardStarted)
    assert held_before(trace, start.seq) == held > 0
    assert differences(trace) == []
