"""Recording on a CUDA device: the same results, and nothing waits for the device."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz.events import NodeFinished, NotFiniteSeen, OpCalled, TensorSeen
from autogradviz.recorder.native import build

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(params=["native", "python"])
def engine(request):
    if request.param == "native" and not build.status().usable:
        pytest.skip("the native engine is not built")
    return request.param


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.second = nn.Linear(64, 64)

    def forward(self, x):
        hidden = nn.functional.dropout(self.first(x).gelu(), 0.1)
        return x + checkpoint(self.second, hidden, use_reentrant=False)


def step(model):
    torch.cuda.manual_seed_all(0)
    x = torch.linspace(-1, 1, 64 * 8, device="cuda").view(8, 64)
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(x).square().mean()
    loss.backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    return [loss.detach(), *gradients]


def test_results_are_equal(engine):
    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block()).cuda()
    step(model)
    plain = step(model)
    with autogradviz.record(model, engine=engine) as trace:
        recorded = step(model)
    assert all(torch.equal(a, b) for a, b in zip(plain, recorded, strict=True))
    assert {event.device for event in trace.log.of(TensorSeen)} >= {"cuda:0"}
    assert trace.diagnose() == []


@pytest.mark.parametrize("options", [{}, {"ops": False}, {"keep_steps": 3}], ids=str)
def test_step_does_not_wait_for_the_device(engine, options):
    model = nn.Sequential(Block(), Block()).cuda()
    step(model)
    with autogradviz.record(model, engine=engine, **options) as trace:
        torch.cuda.set_sync_debug_mode("error")
        try:
            step(model)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert trace.log.of(NodeFinished)


def test_capture_of_a_cuda_graph_is_unchanged(engine):
    weight = torch.ones(4, device="cuda", requires_grad=True)
    x = torch.ones(4, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        (weight * x).sum().backward()  # a warm-up, as PyTorch asks for
    torch.cuda.current_stream().wait_stream(stream)
    weight.grad = None
    graph = torch.cuda.CUDAGraph()
    with autogradviz.record(engine=engine) as trace, torch.cuda.graph(graph):
        (weight * x).sum().backward()
    x.fill_(3)
    graph.replay()
    assert weight.grad.tolist() == [3, 3, 3, 3]
    assert trace.log.of(OpCalled)


def test_fingerprints_are_read_on_the_device():
    with autogradviz.record(fingerprints=True) as trace:
        torch.tensor([1.0, float("nan")], device="cuda").mul(2)
    assert [event.nan_count for event in trace.log.of(NotFiniteSeen)]
