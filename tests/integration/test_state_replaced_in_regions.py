"""Checkpointed regions that assign a new tensor to what they read, without fingerprints."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import autogradviz


class Block(nn.Module):
    """A layer whose forward is checkpointed."""

    def __init__(self):
        super().__init__()
        self.router, self.expert = nn.Linear(4, 4), nn.Linear(4, 4)
        self.state = torch.zeros(4)

    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=False)


class LoadAdded(Block):
    """Adds to its load, which decides on the next choice."""

    def body(self, x):
        p = torch.softmax(self.router(x) - self.state, -1)
        self.state = self.state + p.detach().sum(0)  # <-- named
        return self.expert(x) * p


class LoadAveraged(Block):
    """Reads a moving average, and replaces it at the end."""

    def body(self, x):
        p = torch.softmax(self.router(x) - self.state, -1)
        out = self.expert(x) * p
        self.state = 0.9 * self.state + 0.1 * p.detach().mean(0)  # <-- named
        return out


class LastResult(Block):
    """Starts from its last result, as a recurrent layer."""

    def body(self, x):
        h = torch.tanh(self.router(x) + self.state)
        out = self.expert(h) * h
        self.state = h.detach().mean(0)  # <-- named
        return out


class InADict(Block):
    """Keeps its state in a dict."""

    def __init__(self):
        super().__init__()
        self.states = {"load": torch.zeros(4)}

    def body(self, x):
        p = torch.softmax(self.router(x) - self.states["load"], -1)
        self.states["load"] = self.states["load"] + p.detach().sum(0)  # <-- named
        return self.expert(x) * p


class Counted(Block):
    """Counts its calls; no gradient reads the count."""

    def body(self, x):
        p = torch.softmax(self.router(x), -1)
        self.state = self.state + 1  # <-- named
        return self.expert(x) * p


class MadeAgain(Block):
    """Makes its mask in each call."""

    def body(self, x):
        self.state = torch.arange(4) * 0.5
        return self.expert(x) * torch.softmax(self.router(x) + self.state, -1)


class MadeOutside(Block):
    """Has a table that each forward makes again, before the region."""

    def forward(self, x):
        self.state = torch.cos(torch.arange(4) * 0.5)
        return super().forward(x)

    def body(self, x):
        return self.expert(x) * torch.softmax(self.router(x) + self.state, -1)


class Moved(Block):
    """Converts its state at the first call."""

    def body(self, x):
        self.state = self.state.to(torch.float64).to(x.dtype)
        return self.expert(x) * torch.softmax(self.router(x) + self.state, -1)


class StoredOnly(Block):
    """Stores a result that it does not read."""

    def body(self, x):
        p = torch.softmax(self.router(x), -1)
        self.state = p.detach()
        return self.expert(x) * p


class Passed(Block):
    """Gets its state as an argument, and returns it."""

    def forward(self, x):
        out, state = checkpoint(self.body, x, self.state, use_reentrant=False)
        self.state = state.detach()
        return out

    def body(self, x, state):
        p = torch.softmax(self.router(x) - state, -1)
        return self.expert(x) * p, state + p.sum(0)


def findings(kind, *, forwards=1):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), kind())
    with autogradviz.record(model) as trace:
        for _ in range(2):
            outputs = [model(torch.rand(3, 4)) for _ in range(forwards)]
            sum(outputs).square().mean().backward()
    return [each for each in trace.diagnose() if each.confidence != "hint"]


def named_line(kind):
    lines, first = inspect.getsourcelines(kind)
    return next(first + i for i, line in enumerate(lines) if line.endswith("# <-- named\n"))


@pytest.mark.parametrize("kind", [LoadAdded, LoadAveraged, LastResult, InADict])
@pytest.mark.parametrize("forwards", [1, 2])
def test_state_that_a_region_replaces_is_found_without_contents(kind, forwards):
    first = findings(kind, forwards=forwards)[0]
    assert first.slug == "checkpoint-different-values"
    assert first.confidence == "likely"
    assert (first.culprit.filename, first.culprit.lineno) == (__file__, named_line(kind))


def test_count_that_no_gradient_reads_is_an_effect_that_repeats():
    (finding,) = findings(Counted)
    assert finding.slug == "checkpoint-effect-repeated"
    assert finding.culprit.lineno == named_line(Counted)


@pytest.mark.parametrize("kind", [MadeAgain, MadeOutside, Moved, StoredOnly, Passed])
@pytest.mark.parametrize("forwards", [1, 2])
def test_regions_that_read_equal_values_are_not_accused(kind, forwards):
    assert findings(kind, forwards=forwards) == []
