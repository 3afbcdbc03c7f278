"""The graph draws where a line of the user detaches a value that another node reads."""

from __future__ import annotations

import re

import torch
from torch import nn

import autogradviz


def detaches(program):
    with autogradviz.record() as trace:
        program()
    scene = trace._scene
    names = [*(node.name for node in scene.nodes), None]
    return [(names[d.reader], names[d.producer], d.lineno) for d in scene.detaches]


def line_of(program, offset):
    return program.__code__.co_firstlineno + offset


def test_reader_and_producer_of_a_detached_value_are_drawn():
    def step():
        weight = torch.randn(4, 4, requires_grad=True)
        fake = weight.tanh()
        (weight * fake.detach()).sum().backward()
        (weight + fake).sum().backward()

    assert detaches(step) == [("MulBackward0", "TanhBackward0", line_of(step, 3))]


def test_producer_that_no_loss_reaches_is_not_drawn():
    def step():
        weight = torch.randn(4, 4, requires_grad=True)
        (weight * weight.tanh().detach()).sum().backward()

    assert detaches(step) == [("MulBackward0", None, line_of(step, 2))]


def test_what_is_computed_from_a_detached_value_is_detached_too():
    def step():
        weight = torch.randn(4, requires_grad=True)
        target = weight.exp().detach()
        target = (target + 1).view(2, 2)
        (weight.view(2, 2) - target).pow(2).sum().backward()

    assert detaches(step) == [("SubBackward0", None, line_of(step, 2))]


def test_detached_values_that_no_node_reads_are_not_drawn():
    def step():
        weight = torch.randn(4, requires_grad=True)
        loss = weight.exp().sum()
        loss.backward()
        loss.detach().item()

    assert detaches(step) == []


def test_picture_has_a_broken_arrow_with_the_line():
    weight = torch.randn(4, 4, requires_grad=True)
    with autogradviz.record() as trace:
        (weight * weight.tanh().detach()).sum().backward()
    lineno = line_of(test_picture_has_a_broken_arrow_with_the_line, 3)
    assert f"detach, line {lineno}" in trace.graph().svg()


def test_broken_arrow_is_above_the_frame_whose_header_would_be_under_it():
    inner = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))
    model = torch.nn.Sequential(inner, torch.nn.Linear(4, 4))
    weight = torch.randn(4, 4, requires_grad=True)
    with autogradviz.record(model) as trace:
        (model(weight.tanh().detach()).sum() + weight.sum()).backward()
    svg = trace.graph(depth=2).svg()
    label, header = (
        float(re.search(rf'y="([\d.]+)"[^>]*>{words}', svg)[1])
        for words in ("detach, line", "Sequential<")
    )
    assert header - 40 < label < header - 10


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(64, 5)
        self.head = nn.Linear(64, 10)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)) for _ in range(5)
        )

    def forward(self, x):
        weights = torch.softmax(self.router(x).detach(), dim=-1)
        out = 0
        for at, expert in enumerate(self.experts):
            out = out + weights[:, at : at + 1] * expert(x)
        return self.head(out)


def test_the_group_in_which_gradients_end_is_open():
    model = nn.Sequential(Mixture(), nn.ReLU())
    with autogradviz.record(model) as trace:
        loss = nn.functional.cross_entropy(model(torch.rand(512, 64)), torch.zeros(512).long())
        loss.backward()
    assert trace.diagnose()[0].slug == "gradient-missing"
    scene = trace._scene
    (group,) = [group for group in scene.groups if group.type_name == "Mixture"]
    assert group.open
    assert all(scene.nodes[each.reader].group == group.index for each in scene.detaches)
