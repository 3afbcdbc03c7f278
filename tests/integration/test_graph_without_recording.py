"""``autogradviz.graph``: a picture of an existing graph, without a recording."""

import pytest
import torch
from programs import Block, stack
from torch import nn
from torch.autograd.graph import get_gradient_edge, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz.errors import GraphTooLargeError, MissingProgramError, NotAGraphError


def names(view):
    return sorted(node.name for node in view._scene.nodes)


def test_graph_is_drawn_with_parameter_names():
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
    view = autogradviz.graph(net(torch.rand(2, 3)).sum(), net, title="Two layers")
    assert "Two layers" in view.svg()
    assert names(view) == ["AddmmBackward0", "SumBackward0", "TanhBackward0"]
    assert {p.name for p in view._scene.parameter_badges} == {"0.weight", "0.bias"}
    svg = view.svg()
    assert svg.startswith("<svg")
    assert "TanhBackward0" in svg


def test_drawing_runs_nothing_and_changes_nothing():
    calls = []

    def work(x):
        calls.append("forward")
        return x.exp().sin()

    x = torch.rand(3, requires_grad=True)
    unpacks = []
    with saved_tensors_hooks(lambda t: t.detach(), lambda t: unpacks.append(1) or t):
        loss = (checkpoint(work, x, use_reentrant=False) * x).sum()
    autogradviz.graph(loss)
    assert (calls, unpacks) == (["forward"], [])
    assert loss.grad_fn.metadata == {}
    assert loss.grad_fn.next_functions[0][0].metadata == {}
    loss.backward()
    assert x.grad is not None


def test_freed_and_mutated_graphs_are_drawn():
    x = torch.rand(3, requires_grad=True)
    loss = x.exp().sum()
    loss.backward()
    assert names(autogradviz.graph(loss)) == ["ExpBackward0", "SumBackward0"]
    y = x.exp()
    total = y.sum()
    y.add_(1)
    assert names(autogradviz.graph(total)) == ["ExpBackward0", "SumBackward0"]


def test_edges_lists_and_dicts_are_accepted():
    x = torch.rand(3, requires_grad=True)
    a, b = x.exp(), x.sin()
    assert names(autogradviz.graph({"a": a, "b": [b]})) == ["ExpBackward0", "SinBackward0"]
    assert names(autogradviz.graph(get_gradient_edge(a))) == ["ExpBackward0"]


@pytest.mark.parametrize("thing", [torch.rand(3), 3, None, [], "loss", torch.ones(2).sum()])
def test_objects_without_a_graph_are_refused(thing):
    with pytest.raises(NotAGraphError, match="has no autograd graph"):
        autogradviz.graph(thing)


def test_graph_can_be_drawn_while_recording():
    x = torch.rand(3, requires_grad=True)
    with autogradviz.record() as trace:
        loss = x.exp().sum()
        assert names(autogradviz.graph(loss)) == ["ExpBackward0", "SumBackward0"]
        loss.backward()
    assert [s.slot for s in trace.saved_tensors()] == ["result"]
    assert len(trace.analysis.graph.nodes) == 3


def test_depth_opens_and_closes_all_groups():
    net = stack(3)
    with autogradviz.record(net) as trace:
        net(torch.rand(2, 8)).sum().backward()
    closed, opened = trace.graph(depth=1), trace.graph(depth=99)
    assert not any(g.open for g in closed._scene.groups if g.kind == "module")
    assert all(g.open for g in opened._scene.groups)
    assert len(opened.svg()) > 3 * len(closed.svg())


def test_dot_is_drawn_or_the_error_names_the_packages(monkeypatch):
    net = Block()
    with autogradviz.record(net) as trace:
        net(torch.rand(2, 8)).sum().backward()
    assert "digraph" in trace.graph().dot()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingProgramError, match=r"apt|brew|conda"):
        trace.graph().svg(engine="dot")
    with pytest.raises(ValueError, match="native"):
        trace.graph().svg(engine="neato")


@pytest.mark.slow(reason="draws a large graph")
def test_rnn_of_a_thousand_steps_is_drawn_and_refused_by_dot():
    w = [nn.Parameter(torch.randn(4, 4) * 0.1) for _ in range(3)]
    h = torch.zeros(2, 4)
    with autogradviz.record(stacks=False) as trace:
        for _ in range(1_000):
            h = torch.tanh(h @ w[0] + (h @ w[1]) * 0.5 + w[2][0])
        h.sum().backward()
    assert len(trace.analysis.graph.nodes) > 5_000
    assert "×1,000 same ops" in trace.graph().svg()
    svg = trace.graph(depth=9).svg()
    assert svg.count("TanhBackward0") >= 1_000
    with pytest.raises(GraphTooLargeError, match="5,000"):
        trace.graph(depth=9).svg(engine="dot")


def test_empty_recording_has_a_picture_and_a_repr():
    with autogradviz.record() as trace:
        pass
    assert trace.graph().svg().startswith("<svg")
    assert trace.diagnose() == []
    assert "0 nodes" in repr(trace)
