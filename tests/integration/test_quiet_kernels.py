"""Calls inside kernels, which the native engine does not observe."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

import autogradviz
from autogradviz.events import OpCalled

pytestmark = pytest.mark.usefixtures("native")
REPEATS = 6


def names_by_step(trace) -> list[Counter[str]]:
    """Return the calls of each operator, counted for each step."""
    steps = [Counter()]
    for event in trace.log.of(OpCalled):
        if event.op == "aten.erfinv.default":
            steps.append(Counter())
        else:
            steps[-1][event.op] += 1
    return steps[:-1]


def end_step() -> None:
    torch.zeros(()).erfinv()


def test_operators_of_a_pack_hook_are_recorded_in_each_step():
    weight = torch.randn(3, 4, requires_grad=True)

    def pack(tensor):
        return tensor.t().contiguous().cos()

    with autogradviz.record() as trace:
        for _ in range(REPEATS):
            weight.grad = None
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed.t()):
                torch.nn.functional.layer_norm(weight.t(), [3]).std().backward()
            end_step()
    steps = names_by_step(trace)
    assert len(steps) == REPEATS
    assert steps[0]["aten.cos.default"] >= 2
    assert steps[1:] == steps[:1] * (REPEATS - 1)


def test_hook_that_raises_leaves_the_observers_on():
    weight = torch.randn(3, 4, requires_grad=True)

    def pack(tensor):
        raise KeyError(tensor.shape)

    with autogradviz.record() as trace:
        for _ in range(REPEATS):
            with (
                pytest.raises(KeyError),
                torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed),
            ):
                torch.nn.functional.layer_norm(weight.t(), [3])
            weight.detach().std(dim=1)
            with pytest.raises(IndexError):
                weight.detach().std(dim=7)
            end_step()
    steps = names_by_step(trace)
    assert steps[0]["aten.t.default"] == 1
    assert steps[1:] == steps[:1] * (REPEATS - 1)
    assert Counter(profiled(weight)) == Counter(profiled(weight))


def profiled(weight) -> list[str]:
    weight.grad = None
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for _ in range(REPEATS):
            weight.t().mm(weight).std().backward()
    return [event.name for event in profiler.events() if event.name.startswith("aten::")]


def test_profiler_sees_calls_inside_kernels():
    weight = torch.randn(4, 4, requires_grad=True)
    expected = Counter(profiled(weight))
    assert expected["aten::as_strided"] > expected["aten::t"] > 0
    with autogradviz.record():
        for _ in range(REPEATS):
            weight.t().mm(weight).std().backward()
        found = Counter(profiled(weight))
    assert found == expected
    assert Counter(profiled(weight)) == expected
