"""Exceptions that no operator raised: a gradient that is None, and methods that refuse."""

from __future__ import annotations

import inspect
import textwrap

import pytest
import torch
from torch import nn

import autogradviz


class Model(nn.Module):
    def __init__(self, *, detached=False):
        super().__init__()
        self.body, self.head, self.pooler = nn.Linear(4, 4), nn.Linear(4, 1), nn.Linear(4, 1)
        self.detached = detached

    def forward(self, x):
        hidden = self.body(x)
        if self.detached:
            hidden = hidden.detach()  # <-- the way ends
        return self.head(hidden)


def attribute_of_grad(model):
    for parameter in model.parameters():
        parameter.grad.mul_(0.5)  # <-- raises


def variable_of_grad(model):
    for parameter in model.parameters():
        grad = parameter.grad
        grad.clamp_(-1, 1)  # <-- raises


def operator_of_grad(model):
    for parameter in model.parameters():
        parameter.data -= 0.1 * parameter.grad  # <-- raises


def grads_in_an_expression(model):
    return sum(p.grad.norm() for p in model.parameters())  # <-- raises


def read_by_copied_code(model):
    """Run lines of another function of this file by themselves, as a notebook or ``exec`` does."""
    lines, first = inspect.getsourcelines(attribute_of_grad)
    text = "\n" * first + textwrap.dedent("".join(lines[1:]))
    exec(compile(text, __file__, "exec"), {"model": model})


def diagnosed(model, change):
    with (
        pytest.raises((AttributeError, TypeError), match="NoneType"),
        autogradviz.record(model) as trace,
    ):
        model(torch.ones(2, 4)).sum().backward()
        change(model)
    return trace.diagnose()


@pytest.mark.parametrize(
    "change",
    [
        attribute_of_grad, variable_of_grad, operator_of_grad, grads_in_an_expression,
        read_by_copied_code,
    ],
)  # fmt: skip
def test_line_that_reads_a_missing_gradient_is_named_with_the_parameters(change):
    (finding,) = diagnosed(Model(), change)
    assert (finding.slug, finding.confidence) == ("operation-refused", "likely")
    assert finding.culprit.text.endswith("# <-- raises")
    assert "pooler.weight" in finding.explanation
    assert "body.weight" not in finding.explanation


def test_line_at_which_the_way_of_the_gradient_ends_is_the_culprit():
    model = Model(detached=True)
    del model.pooler
    (finding,) = diagnosed(model, attribute_of_grad)
    assert finding.culprit.text.endswith("# <-- the way ends")
    assert finding.victim.text.endswith("# <-- raises")


def test_none_that_is_no_gradient_has_no_finding():
    model = Model()
    with pytest.raises(AttributeError), autogradviz.record(model) as trace:
        model(torch.ones(2, 4)).sum().backward()
        None.step()
    assert trace.diagnose() == []


def refused_flag(x):
    return x.requires_grad_(False)


def condition_on_elements(x):
    return max(x, 0)


@pytest.mark.parametrize("refuse", [refused_flag, condition_on_elements])
def test_method_that_refuses_is_at_the_line_that_called_it(refuse):
    model = Model()
    with pytest.raises(RuntimeError), autogradviz.record(model) as trace:
        refuse(model(torch.ones(2, 4)))
    (finding,) = trace.diagnose()
    assert (finding.slug, finding.confidence) == ("operation-refused", "hint")
    assert finding.culprit.function == refuse.__name__


def test_runtime_error_that_the_user_raises_has_no_finding():
    model = Model()
    with pytest.raises(RuntimeError, match="mine"), autogradviz.record(model) as trace:
        model(torch.ones(2, 4)).sum().backward()
        raise RuntimeError("mine")
    assert trace.diagnose() == []
