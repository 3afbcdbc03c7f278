"""The answer about a finding says more than its title."""

from __future__ import annotations

import contextlib

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import autogradviz


class WithUnused(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.aux = nn.Linear(4, 2)

    def forward(self, x):
        return self.body(x)


def test_the_answer_about_missing_gradients_is_that_of_their_parameters():
    model = WithUnused()
    with autogradviz.record(model) as trace:
        model(torch.rand(2, 4)).sum().backward()
    (finding,) = [each for each in trace.diagnose() if each.slug == "gradient-missing"]
    explanation = trace.why(finding)
    own = [step.text for name in ("aux.weight", "aux.bias") for step in trace.why(name).steps]
    assert [step.text for step in explanation.steps] == own
    assert finding.title not in own
    assert explanation.alternatives == ()
    assert explanation.to_record == ""  # contents of tensors would not tell more
    names = [(row.name, row.module, row.called) for row in trace._viewer_scene.unused_parameters]
    assert names == [("aux.weight", "aux", False), ("aux.bias", "aux", False)]


def test_what_keeps_a_graph_alive_is_a_step_of_the_answer():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = []
    with autogradviz.record(model) as trace:
        for _ in range(4):
            loss = model(torch.rand(2, 4)).tanh().sum()
            loss.backward(retain_graph=True)
            kept.append(loss)
            optimizer.step()
            optimizer.zero_grad()
    (finding,) = [each for each in trace.diagnose() if each.slug == "graph-kept"]
    steps = trace.why(finding).steps
    owner = next(step.text for step in steps if step.text.startswith("kept alive by "))
    assert owner.removeprefix("kept alive by ") in finding.explanation
    assert steps[-1].location == finding.culprit


class RunsTwice(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.calls = 0

    def inner(self, x):
        self.calls += 1
        x = self.linear(x)
        if self.calls > 1:
            return x[:, :2].tanh()
        return x.tanh()

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False)


def test_forward_and_recomputation_are_steps_of_the_answer_about_a_checkpoint():
    model = RunsTwice()
    with contextlib.suppress(RuntimeError), autogradviz.record(model) as trace:
        model(torch.rand(2, 4, requires_grad=True)).sum().backward()
    finding = trace.diagnose()[0]
    steps = trace.why(finding).steps
    assert [(step.text, step.statement) for step in (steps[0], steps[-1])] == [
        ("the forward ran tanh, which gave float32 2×4", "return x.tanh()"),
        ("the recomputation ran slice, which gave float32 2×2", "return x[:, :2].tanh()"),
    ]
    assert finding.culprit in [step.location for step in steps[1:-1]]
