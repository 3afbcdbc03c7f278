"""``Trace.graph(open=, title=)``: some modules open, the others closed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import autogradviz


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 8)
        self.down = nn.Linear(8, 4)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.h = nn.ModuleList(Block() for _ in range(5))

    def forward(self, x):
        for block in self.h:
            x = block(x)
        return x.sum()


@pytest.fixture(scope="module")
def trace():
    model = Net()
    with autogradviz.record(model) as trace:
        model(torch.ones(2, 4)).backward()
    return trace


def opened(view):
    return [group.label for group in view._scene.groups if group.open]


def test_named_module_is_open_and_apart_from_its_identical_neighbors(trace):
    scene = trace.graph(open="h.2")._scene
    assert opened(trace.graph(open="h.2")) == ["Net", "h", "h.2"]
    labels = {group.label for group in scene.groups}
    assert {"h.2", "h.3–4"} <= labels


def test_depth_opens_others_too(trace):
    assert {"h.0", "h.2"} <= set(opened(trace.graph(open=["h.2"], depth=3)))


def test_title_is_drawn(trace):
    svg = trace.graph(title="One <step>").svg()
    assert "One &lt;step&gt;" in svg
    assert "One &lt;step&gt;" not in trace.graph().svg()


def test_unknown_module_is_an_error(trace):
    with pytest.raises(ValueError, match="belongs to a module 'h.9'"):
        trace.graph(open="h.9")
