"""Causes that stand in helper classes, in constant data, or in steps that were dropped."""

import pytest
import torch
from torch import nn

import autogradviz


def line_of(mark):
    with open(__file__, encoding="utf-8") as file:
        return next(number for number, text in enumerate(file, 1) if text.rstrip().endswith(mark))


class Keeper:
    def __init__(self):
        self.state = None

    def take(self):
        return self.state

    def put(self, state):
        hidden, cell = state
        self.state = hidden.detach(), cell  # <-- kept


def test_state_that_a_method_stores_with_its_graph_is_named_there():
    lstm, keeper = nn.LSTM(3, 4), Keeper()
    with pytest.raises(RuntimeError, match="a second time"), autogradviz.record(lstm) as trace:
        for _ in range(2):
            out, state = lstm(torch.rand(5, 2, 3), keeper.take())
            keeper.put(state)
            out.sum().backward()
    finding = trace.diagnose()[0]
    assert (finding.slug, finding.culprit.lineno) == ("graph-freed", line_of("# <-- kept"))


def degrees():
    return torch.tensor([0.0, 1.0, 2.0])


def normalization():
    return degrees().pow(-0.5)  # <-- infinite


def test_constant_that_is_infinite_is_named():
    model = nn.Linear(3, 3)
    with autogradviz.record(model) as trace:
        weight = normalization()
        (model(torch.rand(2, 3)) * weight).sum().backward()
    finding = trace.diagnose()[0]
    assert (finding.slug, finding.culprit.lineno) == ("not-finite", line_of("# <-- infinite"))


class Gated(nn.Module):
    def __init__(self, unused):
        super().__init__()
        self.gate, self.out = nn.Linear(3, 4), nn.Linear(3, 4)
        self.unused = unused
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        weights = self.gate(x).softmax(-1)
        best, index = weights.topk(2)
        best = best / best.sum(-1, keepdim=True)  # <-- not used
        chosen = torch.zeros_like(weights).scatter(-1, index, 0.5)
        if not self.unused and self.calls == 1:
            chosen = torch.zeros_like(weights).scatter(-1, index, best)
        return self.out(x) * chosen


def train(model, every_step):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(8):
        optimizer.zero_grad()
        if every_step or model.calls == 0:
            loss = model(torch.rand(5, 3)).sum()
        else:
            loss = model.out(torch.rand(5, 3)).sum()
        loss.backward()
        optimizer.step()


def test_gradient_that_is_missing_in_each_kept_step_is_found(tmp_path):
    model = Gated(unused=True)
    with autogradviz.record(model, keep_steps=3) as trace:
        train(model, every_step=True)
    finding = trace.diagnose()[0]
    assert (finding.slug, finding.culprit.lineno) == ("gradient-missing", line_of("# <-- not used"))
    assert finding.title.startswith("gate.") or "2 parameters" in finding.title


def test_parameter_that_kept_steps_do_not_use_may_have_had_its_gradient_before():
    model = Gated(unused=False)
    with autogradviz.record(model, keep_steps=3) as trace:
        train(model, every_step=False)
    assert "gradient-missing" not in [finding.slug for finding in trace.diagnose()]
