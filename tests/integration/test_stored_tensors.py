"""The statement that keeps a tensor with its graph: an entry of a log, or what stores it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import autogradviz


def entry_of_a_returned_log(model, kept):
    def compute():
        loss = model(torch.ones(2, 4)).square().mean()
        log = {
            "count": 2,
            "loss": loss,  # <-- stores
        }
        return loss, log

    def step():
        loss, log = compute()
        kept.append(log)
        return loss

    return step


def log_that_is_the_only_result(model, kept):
    def compute():
        loss = model(torch.ones(2, 4)).square().mean()
        return {"loss": loss}

    def step():
        log = compute()
        kept.append(log)  # <-- stores
        return log["loss"]

    return step


def argument_of_append(model, kept):
    def step():
        loss = model(torch.ones(2, 4)).square().mean()
        kept.append(loss)  # <-- stores
        return loss

    return step


def entry_of_an_appended_dict(model, kept):
    def step():
        loss = model(torch.ones(2, 4)).square().mean()
        kept.append({"loss": loss})  # <-- stores
        return loss

    return step


def attribute_of_an_object(model, kept):
    class History:
        pass

    def step():
        loss = model(torch.ones(2, 4)).square().mean()
        history = History()
        history.last = loss  # <-- stores
        kept.append(history)
        return loss

    return step


def detached_entry(model, kept):
    def step():
        loss = model(torch.ones(2, 4)).square().mean()
        kept.append({"loss": loss.detach()})
        return loss

    return step


def recorded(program):
    torch.manual_seed(0)
    model, kept = nn.Linear(4, 1), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = program(model, kept)
    with autogradviz.record(model, keep_steps=4) as trace:
        for _ in range(4):
            optimizer.zero_grad()
            loss = step()
            loss.backward()
            optimizer.step()
            del loss
    assert len(kept) == 4
    return trace


@pytest.mark.parametrize(
    "program",
    [
        entry_of_a_returned_log, log_that_is_the_only_result, argument_of_append,
        entry_of_an_appended_dict, attribute_of_an_object,
    ],
)  # fmt: skip
def test_statement_to_change_is_named(program):
    found = [f for f in recorded(program).diagnose() if f.mechanism == "keep"]
    assert found[0].culprit.text.endswith("# <-- stores")
    assert {each.confidence for each in found} == {"hint"}


def test_tensors_without_a_graph_are_no_finding():
    assert [f for f in recorded(detached_entry).diagnose() if f.mechanism == "keep"] == []
