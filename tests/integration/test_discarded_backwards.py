"""Backwards of which all gradients are cleared before a step uses them."""

from __future__ import annotations

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
