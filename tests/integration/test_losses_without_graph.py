"""Losses without a graph: the line named is one that their values came through."""

from __future__ import annotations

import contextlib
import inspect

import numpy as np
import pytest
import torch
from torch import nn

import autogradviz


def output():
    return nn.Linear(3, 3)(torch.rand(2, 3))


def seen(value):
    assert value is not None


# --- the loss is computed from no tensor ------------------------------------------------------


def next_to_a_detach():
    target = output().detach()
    loss = torch.tensor([0.0])  # <-- named
    seen(target)
    loss.backward()


def next_to_a_number():
    seen(output().mean().item())
    loss = torch.tensor([0.0])  # <-- named
    loss.backward()


def zeros_next_to_a_detach():
    seen(output().detach())
    loss = torch.zeros(1)  # <-- named
    loss.backward()


def sum_to_which_nothing_is_added():
    out = output()
    mask = out.detach() > 100
    loss = torch.tensor(0.0)  # <-- named
    for row, wanted in zip(out, mask, strict=True):
        if wanted.any():
            loss = loss + row.sum()
    loss.backward()


def computed_with_afterwards():
    seen(output().detach().sum().item())
    loss = torch.tensor([0.0, 0.0])  # <-- named
    (loss / 2).mean().backward()


# --- its values came through numbers ----------------------------------------------------------


def item_in_the_statement():
    loss = torch.tensor(output().mean().item())  # <-- named
    loss.backward()


def sum_of_items():
    seen(output().detach())
    total = 0.0
    for _ in range(2):
        total += output().mean().item()  # <-- named
    loss = torch.tensor(total / 2)
    loss.backward()


def item_in_a_function():
    def score(x):
        return x.mean().item()  # <-- named

    value = score(output())
    seen(output().detach())
    loss = torch.tensor([value, value]).sum()
    loss.backward()


def item_written_into_zeros():
    loss = torch.zeros(2)
    for row in range(2):
        loss[row] = output().mean().item()  # <-- named
    loss.sum().backward()


def detach_for_numpy():
    values = output().detach().numpy()  # <-- named
    error = np.square(values).mean()
    loss = torch.tensor(error)
    loss.backward()


def finding(program):
    with contextlib.suppress(RuntimeError), autogradviz.record() as trace:
        program()
    lines, first = inspect.getsourcelines(program)
    named = next(first + i for i, line in enumerate(lines) if line.endswith("# <-- named\n"))
    (found,) = trace.diagnose()
    assert found.slug == "graph-lost"
    assert found.culprit.lineno == named
    return found


@pytest.mark.parametrize(
    "program",
    [
        next_to_a_detach,
        next_to_a_number,
        zeros_next_to_a_detach,
        sum_to_which_nothing_is_added,
        computed_with_afterwards,
    ],
)
def test_a_loss_of_literals_names_its_own_line(program):
    found = finding(program)
    assert found.title == "The loss has no graph: it is computed from no tensor"
    assert found.confidence == "certain"


@pytest.mark.parametrize(
    "program",
    [item_in_the_statement, sum_of_items, item_in_a_function, item_written_into_zeros],
)
def test_a_loss_of_numbers_names_the_line_that_read_them(program):
    assert finding(program).title == "The loss has no graph: it ended at .item()"


def test_a_loss_of_an_array_names_the_detach():
    assert finding(detach_for_numpy).title == "The loss has no graph: it ended at detach"


def test_a_loss_of_data_alone_is_not_certain():
    def program():
        seen(output().detach())
        x, y = torch.rand(2, 3), torch.rand(2, 3) * torch.tensor([1.0, 0.0, 1.0])
        (x - y).square().mean().backward()

    with contextlib.suppress(RuntimeError), autogradviz.record() as trace:
        program()
    assert [each.confidence for each in trace.diagnose() if each.confidence == "certain"] == []


def gradient_of(function, x, keep_graph=False):
    return torch.autograd.grad(function(x).sum(), x, create_graph=keep_graph)[0]


def test_a_caller_that_leaves_an_argument_out_is_named():
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    x = torch.rand(2, 3, requires_grad=True)
    with pytest.raises(RuntimeError), autogradviz.record(net) as trace:
        score = gradient_of(net, x)
        score.square().sum().backward()
    finding = trace.diagnose()[0]
    assert (finding.slug, finding.culprit.text) == ("graph-lost", "score = gradient_of(net, x)")
