"""The statement that keeps a tensor with its graph: an entry of a log, or what stores it."""

from __future__ import annotations

from collections import deque

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


def of_several_optimizers(steps, kept):
    """Run rounds of three optimizers; ``f`` makes a tensor in each of the first two."""
    torch.manual_seed(0)
    nets = [nn.Linear(4, 4), nn.Linear(4, 1), nn.Linear(4, 1)]
    first, second, third = (torch.optim.SGD(net.parameters(), lr=0.01) for net in nets)

    def f(x):
        return torch.tanh(nets[0](x))

    def update(optimizer, loss):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for _ in range(steps):
        x = torch.randn(8, 4)
        held = f(x)
        update(second, nets[1](held.detach()).pow(2).mean())
        again = f(x)
        update(first, again.pow(2).mean())
        update(third, nets[2](x).pow(2).mean())
        if kept is not None:
            kept.append(held)


@pytest.mark.parametrize("keep_steps", [None, 3])
def test_tensors_of_one_round_of_several_optimizers_are_not_kept(keep_steps):
    for kept in (None, []):
        options = {} if keep_steps is None else {"keep_steps": keep_steps}
        with autogradviz.record(**options) as trace:
            of_several_optimizers(8, kept)
        found = trace.diagnose()
        assert [finding.slug for finding in found] == ["tensors-kept"] * (kept is not None)
    assert found[0].culprit.text == "kept.append(held)"
    assert found[0].fix.startswith("kept.append(held.detach())")


@pytest.mark.parametrize("bounded", [False, True])
def test_kept_tensors_that_have_no_graph_are_an_entry_only(bounded):
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with autogradviz.record(model) as trace:
        predictions = deque(maxlen=50) if bounded else []
        for _ in range(5):
            out = model(torch.rand(8, 4))
            optimizer.zero_grad()
            out.square().mean().backward()
            optimizer.step()
            predictions.append(out.detach().argmax(1))
    assert [finding.slug for finding in trace.diagnose()] == []
    [entry] = trace.audit().of("keep")
    assert entry.statement == "predictions.append(out.detach().argmax(1))"
    assert entry.fix == "# drop what is not needed"


def test_fix_of_a_tensor_of_which_no_statement_is_known_has_no_other_names():
    model, held = nn.Linear(4, 3), {}

    def compute(at):
        return held.setdefault(at, []) or model(torch.rand(8, 4))

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with autogradviz.record(model) as trace:
        for at in range(5):
            out = compute(at)
            held[at] += [out]
            optimizer.zero_grad()
            out.square().mean().backward()
            optimizer.step()
    [finding] = trace.diagnose()
    assert finding.slug == "tensors-kept"
    assert finding.fix.startswith("# store .detach(), or .item()")
