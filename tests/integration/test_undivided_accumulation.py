"""Backwards of means that add up, while only the number that is logged is divided."""

from __future__ import annotations

import pytest
import torch

import autogradviz

COUNT = 4


def training(backward, *, steps=3):
    net = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with autogradviz.record(net) as trace:
        for _ in range(steps):
            optimizer.zero_grad()
            for _ in range(COUNT):
                backward(net(torch.rand(2, 3)).square().mean(), net)
            optimizer.step()
    return trace


def only_the_log(loss, _):
    loss.backward()
    return loss.item() / COUNT


def loss_too(loss, _):
    loss = loss / COUNT
    loss.backward()
    return loss.item() / COUNT


def nothing(loss, _):
    loss.backward()
    return loss.item()


def by_another_number(loss, _):
    loss.backward()
    return loss.item() / 10


def gradients_too(loss, net):
    loss.backward()
    for parameter in net.parameters():
        parameter.grad.mul_(0.5)
    return loss.item() / COUNT


def of_a_sum(loss, net):
    loss = net(torch.rand(2, 3)).square().sum()
    loss.backward()
    return loss.item() / COUNT


def test_log_that_is_divided_shows_that_the_losses_are_not():
    [finding] = training(only_the_log).diagnose()
    assert (finding.slug, finding.confidence) == ("accumulation-divisor", "hint")
    assert finding.culprit.text == "loss.backward()"
    assert "return loss.item() / COUNT" in finding.explanation
    assert finding.fix.startswith("(loss / 4).backward()")


@pytest.mark.parametrize(
    "backward", [loss_too, nothing, by_another_number, gradients_too, of_a_sum]
)
def test_programs_that_may_mean_the_sum_have_no_such_finding(backward):
    assert "accumulation-divisor" not in {f.slug for f in training(backward).diagnose()}
