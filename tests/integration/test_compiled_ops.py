"""Ops of compiled regions are recorded once, with the region; runs show what a graph cannot."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import autogradviz
from autogradviz.events import OpCalled, RandomDrawn, RecorderFailed

pytestmark = pytest.mark.one_in(2, reason="compiles each program", in_ci=1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)

    def forward(self, x):
        return F.dropout(self.norm(self.linear(x)).tanh(), 0.5).square().mean()


def trained(engine=None, **options):
    """Return the gradient of two compiled steps with eager ops around them, and their trace."""
    torch.compiler.reset()
    torch.manual_seed(0)
    net = Net()
    step = torch.compile(net, backend="aot_eager")

    def train():
        for _ in range(2):
            x = torch.rand(4, 3).mul(2)
            step(x).backward()
        return net.linear.weight.grad

    if engine is None:
        return train(), None
    with autogradviz.record(engine=engine, **options) as trace:
        gradient = train()
    return gradient, trace


def ops_of(trace):
    return [event.op for event in trace.log.of(OpCalled)]


@pytest.fixture(scope="module", params=["native", "python"])
def engine(request):
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "native":
            patch.setenv("AUTOGRADVIZ_CACHE", str(request.getfixturevalue("built")))
        yield request.param


@pytest.fixture(scope="module")
def run(engine):
    return trained(engine)


def test_ops_of_a_region_are_in_its_table_and_not_in_its_runs(run):
    gradient, trace = run
    (region,) = trace.compiled_regions()
    assert len(region.runs) == 2
    in_graph = {op.target for op in (*region.forward_ops, *region.backward_ops)}
    assert {"aten.tanh.default", "aten.tanh_backward.default"} <= in_graph
    assert not {"aten.tanh.default", "aten.tanh_backward.default"} & set(ops_of(trace))
    assert ops_of(trace).count("aten.mul.Tensor") == 2  # the eager ones
    assert trace.log.of(RecorderFailed) == ()
    assert torch.equal(gradient, trained()[0])


def test_random_draws_and_writes_of_a_region_are_recorded_in_each_run(run):
    _, trace = run
    inside = [event.op for event in trace.log.of(RandomDrawn) if event.op != "aten.rand.default"]
    assert len(inside) == 2
    assert ops_of(trace).count("aten.copy_.default") >= 4  # running mean and variance


def test_fingerprints_need_every_op(engine):
    gradient, trace = trained(engine, fingerprints=True)
    assert ops_of(trace).count("aten.tanh.default") == 2
    assert torch.equal(gradient, trained()[0])


def test_graph_modules_of_the_user_are_eager_code(engine):
    module = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.Tanh()))
    with autogradviz.record(engine=engine) as trace:
        torch.compile(nn.Linear(3, 3), backend="aot_eager")(torch.rand(2, 3)).sum().backward()
        module(torch.rand(2, 3)).sum().backward()
    assert "aten.tanh.default" in ops_of(trace)
    assert "aten.tanh_backward.default" in ops_of(trace)


def embedded(rows):
    """Return a compiled step of which every op is left out, and what it looks rows up in."""
    torch.compiler.reset()
    torch.manual_seed(0)
    table = nn.Embedding(4, 3)
    step = torch.compile(lambda row: table(row).tanh().sum(), backend="aot_eager")
    step(torch.tensor(rows)).backward()
    return step, table


def test_a_profiler_sees_the_ops_of_a_region_that_a_recording_leaves_out(engine):
    step, _ = embedded([1, 2])

    def profiled():
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            step(torch.tensor([1, 2])).backward()
        ops = ("aten::embedding", "aten::tanh", "aten::tanh_backward")
        return {each.key: each.count for each in profile.key_averages() if each.key in ops}

    expected = profiled()
    assert set(expected.values()) == {1}
    assert len(expected) == 3
    if engine == "python":  # counted above and below the mode
        expected = dict.fromkeys(expected, 2)
    for recorded_before in (True, False):
        with autogradviz.record(engine=engine) as trace:
            if recorded_before:
                step(torch.tensor([1, 2])).backward()
            found = profiled()
        assert found == expected
        assert "aten.tanh.default" not in ops_of(trace)


def test_ops_after_a_forward_that_fails_are_recorded(engine):
    step, _ = embedded([1, 2])
    with autogradviz.record(engine=engine) as trace:
        with pytest.raises(IndexError):
            step(torch.tensor([1, 9]))
        torch.ones(2).cos()
    assert ops_of(trace).count("aten.cos.default") == 1


def test_ops_after_a_backward_that_fails_are_recorded(engine):
    torch.compiler.reset()
    linear = nn.Linear(3, 3)
    step = torch.compile(lambda x: linear(x).tanh().sum(), backend="aot_eager")
    x = torch.ones(2, 3, requires_grad=True)
    step(x).backward()
    with autogradviz.record(engine=engine) as trace:
        loss = step(x)
        linear.weight.data = torch.ones(5, 7)  # PyTorch does not notice that it has changed
        with pytest.raises(RuntimeError, match="mat1|size"):
            loss.backward()
        torch.ones(2).cos()
    assert ops_of(trace).count("aten.cos.default") == 1
    assert "aten.tanh_backward.default" not in ops_of(trace)


def test_ops_between_and_after_regions_are_recorded_on_every_run(engine):
    step, table = embedded([1, 2])
    seen = []
    table.weight.register_hook(lambda grad: seen.append(grad.exp()))
    with autogradviz.record(engine=engine) as trace:
        for _ in range(3):
            (step(torch.tensor([1, 2])) * 2).backward()
            torch.ones(2).cos()
    ops = ops_of(trace)
    assert [ops.count(f"aten.{name}") for name in ("mul.Tensor", "cos.default", "exp.default")] == [
        6, 3, 3,
    ]  # fmt: skip
    assert "aten.tanh.default" not in ops
    assert "aten.tanh_backward.default" not in ops
