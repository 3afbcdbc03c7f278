"""``torch.compile`` compiles the same graphs with and without recording."""

import warnings
from contextlib import nullcontext

import pytest
import torch
import torch._dynamo
import torch._dynamo.compiled_autograd
from torch import nn
from torch._dynamo import utils as dynamo_utils

import autogradviz
from autogradviz.events import RecorderFailed, RecorderLimited, StepEnded
from autogradviz.scene.layout.coordinates import place


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def train(backend, *, recorded):
    """Return losses and gradients of two steps with a graph break in them."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))

    def loss_of(x):
        y = net(x)
        torch._dynamo.graph_break()
        return (y * 2).sum()

    compiled = torch.compile(loss_of, backend=backend)
    x = torch.rand(3, 4)
    losses = []
    if recorded:
        with autogradviz.record() as trace:
            losses += [_step(compiled, x) for _ in range(2)]
        assert trace.log.of(RecorderFailed) == ()
    else:
        losses += [_step(compiled, x) for _ in range(2)]
    return losses, [p.grad for p in net.parameters()]


def _step(compiled, x):
    loss = compiled(x)
    loss.backward()
    return float(loss.detach())


def graphs_of(*, recorded):
    graphs = []

    def backend(graph, example_inputs):
        graphs.append(graph.code)
        return graph

    return train(backend, recorded=recorded), graphs


def test_compiled_graphs_are_unchanged_by_recording():
    (plain_losses, plain_grads), plain = graphs_of(recorded=False)
    torch._dynamo.reset()
    (losses, grads), seen = graphs_of(recorded=True)
    assert seen == plain
    assert len(plain) == 2
    assert losses == plain_losses
    assert all(torch.equal(a, b) for a, b in zip(grads, plain_grads, strict=True))


def test_compiled_module_is_not_recompiled():
    graphs = []

    def backend(graph, example_inputs):
        graphs.append(graph)
        return graph

    net = torch.compile(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), backend=backend)
    x = torch.rand(3, 4)
    net(x).sum().backward()
    with autogradviz.record() as trace:
        net(x).sum().backward()
    net(x).sum().backward()
    assert len(graphs) == 1
    assert trace.log.of(RecorderFailed) == ()


def test_dynamo_keeps_the_original_module_call():
    with autogradviz.record():
        assert dynamo_utils.unpatched_nn_module_call is nn.Module.__call__
    assert dynamo_utils.unpatched_nn_module_call is nn.Module.__call__


def test_aot_backend_runs_while_recording():
    net = torch.compile(nn.Linear(3, 3), backend="aot_eager")
    with autogradviz.record() as trace:
        net(torch.rand(2, 3)).sum().backward()
    assert {n.name for n in trace.analysis.graph.nodes.values()} >= {"CompiledFunctionBackward"}
    assert trace.log.of(RecorderFailed) == ()


def compiled_backwards(*, recorded):
    """Return graphs, warnings and the gradient of steps with compiled autograd."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    graphs = []

    def backend(graph, example_inputs):
        graphs.append(graph.code)
        return graph

    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    net[0].weight.register_hook(lambda grad: grad * 2)

    @torch.compile(backend=backend)
    def step():
        net(torch.ones(2, 3)).sum().backward()

    trace = None
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with autogradviz.record() if recorded else nullcontext() as trace:
            step()
            step()
    return (graphs, [str(each.message) for each in warned], net[0].weight.grad), trace


@pytest.mark.ci(reason="compiles for minutes")
@pytest.mark.parametrize("compiled", [False, True])
def test_backwards_inside_compiled_code_are_unchanged_by_recording(compiled):
    with torch._dynamo.config.patch(compiled_autograd=compiled):
        compiled_backwards(recorded=False)  # PyTorch emits some warnings once per process
        (plain_graphs, plain_warned, plain_grad), _ = compiled_backwards(recorded=False)
        (graphs, warned, grad), trace = compiled_backwards(recorded=True)
    assert graphs == plain_graphs
    assert warned == plain_warned
    assert torch.equal(grad, plain_grad)
    assert trace.log.of(RecorderFailed) == ()
    limited = [event.hook_point for event in trace.log.of(RecorderLimited)]
    assert limited == (["backward"] if compiled else [])
    assert trace.diagnose() == []


def test_compiled_backward_is_a_step():
    net = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters())
    with (
        torch._dynamo.compiled_autograd._enable(lambda graph: graph),
        autogradviz.record() as trace,
    ):
        net(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    assert len(trace.log.of(StepEnded)) == 1


def test_two_small_regions_open_below_each_other():
    model = torch.compile(torch.nn.Linear(4, 4), backend="aot_eager", dynamic=False)
    with autogradviz.record(model) as trace:
        for length in (2, 3):
            model(torch.rand(length, 4)).sum().backward()
    scene = trace._scene
    first, second = (group for group in scene.groups if group.kind == "compiled")
    assert (first.open, second.open) == (True, True)
    assert [first.label, second.label] == ["module [0/0]", "module [0/1]"]
    boxes = place(scene, {first.index, second.index}).boxes
    above, below = (box for box in boxes if box.kind == "frame")
    assert above.y + above.height < below.y
    assert abs((above.x + above.width / 2) - (below.x + below.width / 2)) < 1
