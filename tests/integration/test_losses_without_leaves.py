"""Losses without a graph behind which no operator has a node, and losses of several elements."""

from __future__ import annotations

import pytest
import torch

import autogradviz


def detached_leaf(weight):
    return (weight.detach() * 2).sum()  # CULPRIT


def data_of_leaf(weight):
    return (weight.data * 2).sum()  # CULPRIT


def created(_):
    return torch.zeros(3).sum()  # CULPRIT


def not_reduced(weight):
    return torch.nn.functional.mse_loss(weight, torch.zeros(3), reduction="none")  # CULPRIT


@pytest.mark.parametrize("loss_of", [detached_leaf, data_of_leaf, created, not_reduced])
def test_the_line_that_made_the_loss_is_named(loss_of):
    weight = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="grad"), autogradviz.record() as trace:
        loss_of(weight).backward()
    first = trace.diagnose()[0]
    assert first.culprit.text.endswith("# CULPRIT")
    assert first.culprit.function == loss_of.__name__
    assert first.slug == ("loss-not-scalar" if loss_of is not_reduced else "graph-lost")
    assert first.confidence == "likely"  # no event says whether the weight requires a gradient
