"""Backwards of which all gradients are cleared before a step uses them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import autogradviz


def found(train, *models):
    with autogradviz.record(models[0]) as trace:
        train()
    return [each.victim or each.culprit for each in trace.diagnose() if each.mechanism == "drop"]


def accumulating(*, step_at, parts=3):
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train():
        for part in range(3 * parts):
            if part % parts == 0:
                optimizer.zero_grad()
            (model(torch.rand(2, 4)).square().mean() / parts).backward()
            if part % parts == step_at:
                optimizer.step()

    return train, model


def test_a_step_after_the_first_of_several_parts_is_named():
    [place, *_] = found(*accumulating(step_at=0))
    assert "backward()" in place.text


def test_a_step_after_the_last_part_is_no_finding():
    assert found(*accumulating(step_at=2)) == []


def test_gradients_of_a_generator_loss_for_a_discriminator_are_no_finding():
    torch.manual_seed(0)
    maker, judge = nn.Linear(2, 4), nn.Linear(4, 1)
    of_maker, of_judge = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (maker, judge))

    def train():
        for _ in range(3):
            made = maker(torch.rand(3, 2))
            of_judge.zero_grad()
            (judge(made.detach()).mean() - judge(torch.rand(3, 4)).mean()).backward()
            of_judge.step()
            of_maker.zero_grad()
            judge(made).mean().neg().backward()
            of_maker.step()

    assert found(train, maker, judge) == []


def losses(*, detached):
    """Train a GAN whose losses one line differentiates; the judge's gradients are cleared first."""
    torch.manual_seed(0)
    maker, judge = nn.Linear(2, 4), nn.Linear(4, 1)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (judge, maker)]

    def loss(number, made):
        if number == 0:
            given = made.detach() if detached else made
            found = judge(given)  # <-- named
            return found.mean() - judge(torch.rand(3, 4)).mean()
        return judge(made).mean().neg()

    def train():
        for _ in range(3):
            for number, optimizer in enumerate(optimizers):
                judge.zero_grad()
                loss(number, maker(torch.rand(3, 2))).backward()
                optimizer.step()
                optimizer.zero_grad()

    return train, maker


@pytest.mark.parametrize("detached", [False, True])
def test_gradients_that_a_loss_leaves_for_another_optimizer_are_named(detached):
    train, maker = losses(detached=detached)
    with autogradviz.record(maker) as trace:
        train()
    found = [each.culprit.text for each in trace.diagnose() if each.slug == "gradients-mixed"]
    assert found == ([] if detached else ["found = judge(given)  # <-- named"])


def test_two_optimizers_of_one_loss_mix_nothing():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 1))
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in model]
    with autogradviz.record(model) as trace:
        for _ in range(3):
            for _ in range(2):
                model(torch.rand(3, 2)).mean().backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
    assert [each.slug for each in trace.diagnose()] == []
