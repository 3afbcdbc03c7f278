"""Fixes change the statement of the user, and name the line that is to be moved."""

from __future__ import annotations

import contextlib

import pytest
import torch

import autogradviz


def first_finding(step):
    """Return the first finding of a step with a linear layer, and the audit of the recording."""
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    with contextlib.suppress(RuntimeError), autogradviz.record(model) as trace:
        step(model, torch.optim.SGD(model.parameters(), lr=0.1))
    return trace.diagnose()[0], trace.audit()


def train(model, optimizer, steps=4):
    for _ in range(steps):
        loss = model(torch.ones(1, 2)).sum()
        loss.backward()
        optimizer.step()


def cleared_once(model, optimizer):
    optimizer.zero_grad()
    for _ in range(4):
        loss = model(torch.ones(1, 2)).sum()
        loss.backward()
        optimizer.step()


def cleared_too_late(model, optimizer):
    for _ in range(4):
        loss = model(torch.ones(1, 2)).sum()
        loss.backward()
        optimizer.zero_grad()
        optimizer.step()


@pytest.mark.parametrize(("step", "after"), [(cleared_once, 1), (cleared_too_late, 4)])
def test_a_fix_names_the_line_that_clears_gradients_at_the_wrong_place(step, after):
    finding, _ = first_finding(step)
    line = step.__code__.co_firstlineno + after
    name = __file__.rpartition("/")[2]
    assert f"optimizer.zero_grad()  # moved here from {name}:{line}" in finding.fix


def test_a_fix_without_such_a_line_names_none():
    finding, _ = first_finding(train)
    assert finding.fix == "optimizer.step()\noptimizer.zero_grad()  # before the next backward"


def trained_by_other_names(model, given):
    opt = given
    for _ in range(4):
        total = model(torch.ones(1, 2)).sum()
        total.backward()
        opt.step()


def trained_by_two(model, optimizer):
    other = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        other.step()


@pytest.mark.parametrize(
    ("step", "name"), [(trained_by_other_names, "opt"), (trained_by_two, "other")]
)
def test_a_fix_has_the_name_of_the_optimizer_of_its_line(step, name):
    finding, _ = first_finding(step)
    assert finding.slug == "gradients-not-cleared"
    assert f"{name}.zero_grad()" in finding.fix


def test_what_a_write_into_part_of_a_tensor_reads_is_computed_first():
    def scan(rewritten):
        weight = torch.rand(3, requires_grad=True)
        states = torch.zeros(4, 3)
        states[0] = weight
        for t in range(3):
            if rewritten:
                written = weight * states[t]
                states = states.clone()
                states[t + 1] = written
            else:
                states[t + 1] = weight * states[t]
        states.sum().backward()
        return weight

    with contextlib.suppress(RuntimeError), autogradviz.record() as trace:
        scan(rewritten=False)
    assert trace.diagnose()[0].fix == (
        "written = weight * states[t]\nstates = states.clone()\nstates[t + 1] = written"
    )
    assert scan(rewritten=True).grad is not None


def test_numbers_of_one_finding_count_steps():
    finding, [entry, *_] = first_finding(train)
    assert "It was so in all 3 steps that follow another one." in finding.explanation
    assert entry.effect.endswith("contain those of earlier steps, in 3 backwards")


def gives_numpy(model, _):
    return model(torch.ones(1, 2)).numpy()


def asks_for_unused(model, _):
    unused = torch.ones(2, requires_grad=True)
    loss = model(torch.ones(1, 2)).sum()
    return torch.autograd.grad(loss, [model.weight, unused])


def uses_inference_tensor(model, _):
    with torch.inference_mode():
        x = torch.ones(1, 2)
    model(x).sum().backward()


@pytest.mark.parametrize(
    ("step", "fix"),
    [
        (gives_numpy, "return model(torch.ones(1, 2)).detach().numpy()"),
        (
            asks_for_unused,
            "return torch.autograd.grad(loss, [model.weight, unused], allow_unused=True)"
            "  # the gradient of an unused input is None",
        ),
        (
            uses_inference_tensor,
            "with torch.no_grad():  # or clone() the tensor outside inference_mode\n    ...",
        ),
    ],
)
def test_the_fix_of_an_exception_is_a_changed_statement(step, fix):
    finding, _ = first_finding(step)
    assert finding.fix == fix
