"""Answers of ``why()`` agree with the findings: the lines to change, how, and what is wrong."""

import pytest
import torch
from torch import nn

import autogradviz


def clears_in_each_micro_batch(model, optimizer):
    for _ in range(2):
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.rand(4, 3)).sum().backward()
        optimizer.step()


def steps_of_another_layer(model, optimizer):
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.rand(4, 3)).sum().backward()
        optimizer.step()


def recorded(step):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model[1] = nn.Linear(3, 2) if step is steps_of_another_layer else model[1]
    with autogradviz.record(model) as trace:
        step(model, optimizer)
    return trace


@pytest.mark.parametrize(
    ("step", "slug", "target"),
    [
        (clears_in_each_micro_batch, "gradients-discarded", "loss"),
        (steps_of_another_layer, "parameter-not-updated", "1.weight"),
    ],
)
def test_line_of_the_effect_alone_is_no_line_to_change(step, slug, target):
    trace = recorded(step)
    finding = next(each for each in trace.diagnose() if each.slug == slug)
    answer = trace.why(target)
    assert answer.steps[-1].location == finding.culprit
    assert finding.victim is not None
    assert finding.victim not in [each.location for each in answer.alternatives]
    assert "Or change" not in str(answer)
    entry = next(each for each in trace.audit() if each.location == finding.culprit)
    assert finding.victim not in entry.others
    assert answer.fix == finding.fix
    assert f"Fix: {finding.fix.splitlines()[0]}" in str(answer)
    assert trace.why(finding).fix == finding.fix


def test_answer_about_a_loss_that_is_not_finite_names_the_loss():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with autogradviz.record(model) as trace:
        loss = (model(torch.rand(4, 3)).abs() * -1).log().sum()
        loss.backward()
        optimizer.step()
    assert torch.isnan(loss)
    answer = trace.why("loss")
    assert str(answer).splitlines()[0] == "loss: the value is NaN or infinite"
    assert trace.why("loss", answer.question).question == answer.question
