"""The badges of a node in the graph."""

from __future__ import annotations

import torch
from torch.autograd.graph import allow_mutation_on_saved_tensors
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz.scene.payload import to_payload


def marks(trace, name):
    """Return the values of one badge by op, for the drawn nodes that have it."""
    nodes = trace._scene.nodes
    return {node.op: getattr(node, name) for node in nodes if getattr(node, name)}


def leaf(*values):
    return torch.tensor(values or (1.0, 2.0, 3.0), requires_grad=True)


def test_every_in_place_write_has_a_badge():
    with autogradviz.record() as trace:
        b = leaf().exp()
        c = b * 2
        c.add_(1)
        c.relu_().sum().backward()
    assert marks(trace, "wrote") == {"add_": "v0 → v1", "relu_": "v1 → v2"}
    assert marks(trace, "writes") == {}


def test_running_statistics_have_no_write_badge():
    norm = torch.nn.BatchNorm1d(2)
    with autogradviz.record(norm) as trace:
        norm(torch.rand(4, 2)).sum().backward()
    assert marks(trace, "wrote") == {}


def test_clone_badge_is_at_the_saving_node_and_write_badge_at_the_writing_node():
    with autogradviz.record() as trace, allow_mutation_on_saved_tensors():
        b = leaf().exp()
        b.mul_(2)
        b.sum().backward()
    assert marks(trace, "cloned") == {"exp": "result · 12 B"}
    assert marks(trace, "wrote") == {"mul_": "v0 → v1"}
    assert "→" not in trace.graph().svg().split("ExpBackward0")[-1].split("</g>")[0]


def test_recomputed_nodes_have_a_count():
    with autogradviz.record() as trace:
        loss = checkpoint(torch.sin, leaf(), use_reentrant=False).cos().sum()
        loss.backward(retain_graph=True)
        loss.backward()
    assert marks(trace, "recomputes") == {"sin": 2}


def test_non_finite_results_have_a_badge_with_fingerprints():
    def step(a):
        (a.sqrt() * 0).sum().backward()

    with autogradviz.record(fingerprints=True) as trace:
        step(leaf(0.0, 1.0))
    assert marks(trace, "not_finite") == {"sqrt": "backward gave 1 NaN"}
    with autogradviz.record() as trace:
        step(leaf(0.0, 1.0))
    assert marks(trace, "not_finite") == {}


def test_small_gradient_norms_are_in_the_payload():
    a = leaf()
    with autogradviz.record() as trace:
        (a * 1e-6).sum().backward()
    (norm,) = to_payload(trace._scene)["parameter_badges"]["norm"]
    assert 1e-6 < norm < 2e-6
