"""``compare`` of eager and compiled code: saved bytes and recomputed ops by line and module."""

from __future__ import annotations

import pytest
import torch
import torch._functorch.config as functorch_config
from torch import nn
from torch.utils.checkpoint import checkpoint

import autogradviz

pytestmark = pytest.mark.ci(reason="compiles whole models")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x):
        h = self.up(x)
        h = torch.tanh(h)
        h = torch.sin(h * 2)
        return self.down(h).sum()


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = Net(), Net()

    def forward(self, x):
        return self.first(x) + self.last(x)


def record(part, scale=1.0):
    """Record a step in which nothing, one module or the whole model is compiled."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = step = Two()
    if part == "all":
        step = torch.compile(model, backend="aot_eager")
    elif part == "first":
        model.first = torch.compile(model.first, backend="aot_eager")
    with autogradviz.record(model, engine="python") as trace:
        (step(torch.rand(3, 4)) * scale).backward()
    return trace


@pytest.fixture(scope="module")
def traces():
    return {part: record(part) for part in ("none", "first", "all")}


def rows(comparison):
    return {each.what: (each.before, each.after) for each in comparison}


def bytes_by_module(trace):
    sums = {}
    for each in trace.analysis.saved_memory.storages:
        sums[each.module] = sums.get(each.module, 0) + each.nbytes
    return sums


def test_saved_bytes_of_compiled_code_have_the_modules_of_eager_code(traces):
    eager, compiled = (bytes_by_module(traces[part]) for part in ("none", "all"))
    assert set(eager) == {"", "first", "first.up", "first.down", "last", "last.down"}
    assert set(compiled) <= set(eager)
    assert eager["first"] == eager["last"] > 3 * 8 * 4


def test_recomputed_ops_have_a_line_and_a_module(traces):
    found = rows(autogradviz.compare(traces["none"], traces["all"]))
    (region,) = traces["all"].compiled_regions()
    assert "aten.mul.Tensor" in {op.target for op in region.recomputed}
    assert found["recomputed, in all"] == ("0 ops", "2 ops")  # views are left out
    line = Net.forward.__code__.co_firstlineno + 3  # h * 2
    place = f"recomputed at test_compare_compiled.py:{line} in first"
    assert found[place] == ("0 ops", "1 op")


def test_ops_are_not_compared_by_name_if_only_one_program_is_compiled(traces):
    aspects = {each.aspect for each in autogradviz.compare(traces["none"], traces["all"])}
    assert aspects == {"compiled"}
    assert not autogradviz.compare(traces["all"], traces["all"])


def test_parameters_of_a_compiled_module_keep_their_names(traces):
    found = autogradviz.compare(traces["none"], traces["first"])
    assert [each.what for each in found if each.aspect == "gradients"] == []


def test_factor_of_all_gradients_is_named(traces):
    found = autogradviz.compare(traces["none"], record("all", scale=2.0))
    assert rows(each for each in found if each.aspect == "gradients")["norms of 8 gradients"] == (
        "×1",
        "×2",
    )


class Normed(nn.Module):
    """A net with gradients that are zero in exact arithmetic: those of the bias before the norm."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.last = nn.Linear(8, 4)
        self.scale = 1.0

    def forward(self, x):
        h = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        return self.last(h * self.scale).float().square().mean()


def record_normed(dtype, backend=None, scale=1.0):
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Normed().to(dtype)
    model.scale = scale
    step = torch.compile(model, backend=backend) if backend else model
    with autogradviz.record(model) as trace:
        step(torch.randn(4, 3, 8, 8).to(dtype)).backward()
    return trace


def gradients(comparison):
    return [each.what for each in comparison if each.aspect == "gradients"]


def test_other_gradients_are_named_with_the_line_that_uses_the_parameter():
    found = rows(
        autogradviz.compare(
            record_normed(torch.float32), record_normed(torch.float32, "aot_eager", 2.0)
        )
    )
    line = Normed.forward.__code__.co_firstlineno + 2
    before, after = found[f"norm of last.weight (test_compare_compiled.py:{line})"]
    assert float(after) > 2 * float(before)


@pytest.mark.slow(reason="compiles C++ for two dtypes")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_rounding_of_inductor_is_no_difference(dtype):
    eager, compiled = record_normed(dtype), record_normed(dtype, "inductor")
    norms = [
        next(n.parameter.norm for n in each.analysis.graph.nodes.values() if _is_bias(n))
        for each in (eager, compiled)
    ]
    assert norms[0] != norms[1]  # both consist of rounding errors alone
    assert gradients(autogradviz.compare(eager, compiled)) == []


def _is_bias(node):
    return node.parameter is not None and node.parameter.name.endswith("conv.bias")


@pytest.mark.parametrize(
    ("dtype", "scale"), [(torch.float32, 1.002), (torch.bfloat16, 1.2)], ids=["float32", "bfloat16"]
)
def test_wrong_factor_in_a_compiled_region_is_more_than_rounding(dtype, scale):
    eager = record_normed(dtype)
    found = gradients(autogradviz.compare(eager, record_normed(dtype, "aot_eager", scale)))
    assert any(what.startswith("norm") for what in found)  # of one gradient, or of several
    assert gradients(autogradviz.compare(eager, record_normed(dtype, "aot_eager"))) == []


@pytest.mark.parametrize("remedy", ["checkpoint", "budget"])
def test_remedy_of_a_saved_value_makes_the_backward_compute_it(remedy):
    net = Net()

    def body(x):
        return torch.nn.functional.gelu(net.up(x))

    def saved(*, checkpointed=False, budget=1.0):
        torch._dynamo.reset()

        def step(x):
            h = checkpoint(body, x, use_reentrant=False) if checkpointed else body(x)
            return net.down(h).square().sum()

        options = functorch_config.patch(activation_memory_budget=budget)
        with options, autogradviz.record(net, engine="python") as trace:
            torch.compile(step, backend="aot_eager")(torch.rand(3, 4)).backward()
        (region,) = trace.compiled_regions()
        notes.append(" ".join(trace._viewer_scene.compiled_regions[0].notes))
        return {slot.name: slot for slot in region.saved if slot.kind == "value"}

    notes: list[str] = []
    plain = saved()
    assert "To save less: " in notes[0]
    assert "torch._functorch.config.activation_memory_budget below 1, for up to" in notes[0]
    assert "torch.utils.checkpoint around gelu" in plain["gelu"].remedy
    assert "activation_memory_budget below 1" in plain["gelu"].remedy
    changed = saved(checkpointed=True) if remedy == "checkpoint" else saved(budget=0.1)
    assert "gelu" not in changed
