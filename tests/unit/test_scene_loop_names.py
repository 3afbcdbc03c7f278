"""Loops and separate graphs have the names that they have in the user's program."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import autogradviz


def labels(trace, *kinds):
    groups = trace._scene.groups
    return [(group.label, group.type_name) for group in groups if group.kind in kinds]


def line_of(function, text):
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    start = function.__code__.co_firstlineno
    return next(at for at in range(start, len(lines)) if text in lines[at - 1])


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(3, 4)

    def forward(self, tokens):
        h = c = torch.zeros(2, 4)
        for t in range(tokens.shape[1]):
            h, c = self.cell(tokens[:, t], (h, c))
        return h


def test_group_of_iterations_is_named_by_the_line_of_its_loop():
    model = Tagger()
    with autogradviz.record(model) as trace:
        model(torch.rand(2, 6, 3)).sum().backward()
    line = line_of(Tagger.forward, "for t in")
    assert labels(trace, "repeat")[0] == (
        "for t in range(tokens.shape[1])",
        f"test_scene_loop_names.py:{line}",
    )


class Comprehended(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(3, 3)

    def forward(self, x):
        return sum([self.up(part).exp().sin() for part in x.unbind(1)])


def test_comprehension_is_a_loop_and_the_loop_around_the_step_is_not():
    model = Comprehended()
    with autogradviz.record(model) as trace:
        for _ in range(1):
            model(torch.rand(2, 6, 3)).sum().backward()
    names = [label for label, _ in labels(trace, "repeat")]
    assert "for part in x.unbind(1)" in names
    assert "for _ in range(1)" not in names


def different_losses(model):
    loss_d = model(torch.rand(4, 3)).exp().mean()
    loss_d.backward()
    loss_g = model(torch.rand(4, 3)).sin().mean()
    loss_g.backward()


def two_losses(model):
    for _ in range(2):
        loss = model(torch.rand(4, 3)).sum()
        loss.backward()


@pytest.mark.parametrize(
    ("backwards", "names"),
    [(different_losses, ["loss_d", "loss_g"]), (two_losses, ["graph 1", "graph 2"])],
)
def test_separate_graphs_have_the_names_of_their_losses_if_these_differ(backwards, names):
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters())
    with autogradviz.record(model) as trace:
        backwards(model)
        optimizer.step()
    assert sorted({label for label, _ in labels(trace, "graph")}) == names
