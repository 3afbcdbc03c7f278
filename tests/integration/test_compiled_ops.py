"""Ops of compiled regions are recorded once, with the region; runs show what a graph cannot."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import autogradviz
from autogradviz.events import OpCalled, RandomDrawn, RecorderFailed


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
