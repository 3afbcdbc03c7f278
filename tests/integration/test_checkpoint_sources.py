"""Ops and state that differ in a recomputation, as the checkpoint view lists them."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import autogradviz


class Routed(nn.Module):
    calls = 0

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 8)
        self.down = nn.Linear(8, 4)

    def forward(self, x):
        Routed.calls += 1
        h = self.up(x)
        if Routed.calls % 4 == 0:  # noqa: SIM108 -- one line for each branch
            h = h * torch.sigmoid(h)
        else:
            h = functional.gelu(h)
        return x + self.down(h)


def line_of(text):
    lines, first = inspect.getsourcelines(Routed)
    return first + next(at for at, line in enumerate(lines) if text in line)


def scene():
    Routed.calls = 0
    model = nn.ModuleList(Routed() for _ in range(6))
    try:
        with autogradviz.record(model) as trace:
            x = torch.rand(2, 4)
            for block in model:
                x = checkpoint(block, x, use_reentrant=False)
            x.sum().backward()
    except RuntimeError:
        pass
    return trace._viewer_scene


def test_ops_that_ran_in_place_of_others_are_one_row():
    rows = [row for row in scene().diffs if row.status not in {"same", "not_rerun"}]
    gelu, sigmoid = line_of("gelu"), line_of("sigmoid")
    assert [
        (r.status, r.forward_op, r.forward_line, r.recompute_op, r.recompute_line) for r in rows
    ] == [
        ("replaced", "gelu", gelu, "sigmoid", sigmoid),  # and there early stop ended it
    ]


def test_the_line_that_updates_the_state_is_named():
    change = scene().changes[-1]
    assert (change.name, change.before, change.after) == ("Routed.calls", "5", "6")
    assert (change.filename, change.lineno) == (__file__, line_of("calls += 1"))


class Balanced(nn.Module):
    """A router whose buffer changes the choice of the next call."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.register_buffer("load", torch.zeros(4))

    def forward(self, x):
        chosen = x[: 2 + int(self.load.sum())]
        self.load += 1
        return self.inner(chosen).exp().sum() + x.sum()


def test_the_title_names_what_was_written_its_line_and_the_effect():
    model = nn.Sequential(Balanced())
    with pytest.raises(RuntimeError), autogradviz.record(model) as trace:
        checkpoint(model[0], torch.rand(8, 4), use_reentrant=False).backward()
    finding = trace.diagnose()[0]
    lines, first = inspect.getsourcelines(Balanced)
    line = first + next(at for at, text in enumerate(lines) if "load += 1" in text)
    assert (
        finding.title
        == f"self.load was written by line {line}, so module 0 recomputed other shapes"
    )
    state = "self.load (float32 4) had been written once when recomputation started."
    assert state in " ".join(finding.explanation.split())


class Expert(nn.Module):
    """A layer that one of two runs chooses."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 4)

    def forward(self, x):
        return self.up(x).exp()


class Chooses(nn.Module):
    """A router that takes the next expert in each call: a recomputation takes another one."""

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(Expert() for _ in range(3))
        self.load = torch.zeros(3)

    def forward(self, x):
        chosen = int(self.load.argmin())
        out = self.experts[chosen](x)
        self.load[chosen] += 1
        return out.sin()


@pytest.fixture(scope="module")
def other_expert():
    model = nn.Sequential(Chooses())
    with autogradviz.record(model) as trace:
        checkpoint(model[0], torch.rand(8, 4), use_reentrant=False).sum().backward()
    return trace


def test_one_finding_says_that_the_gradients_are_wrong(other_expert):
    findings = other_expert.diagnose()
    assert findings[0].slug == "checkpoint-different-values"
    assert "checkpoint-effect-repeated" not in [each.slug for each in findings]
    assert not any("Gradients are right" in each.explanation for each in findings)


def test_an_op_that_reads_another_parameter_is_a_difference_in_the_scene(other_expert):
    rows = [row for row in other_expert._scene.diffs if row.status == "other_input"]
    assert (rows[0].forward_op, rows[0].recompute_op) == (
        "t(experts.0.up.weight)", "t(experts.1.up.weight)",
    )  # fmt: skip
    texts = [fact.text for fact in other_expert._scene.facts]
    assert "0 of 1 recomputations ran the same ops as the forward, on the same inputs" in texts


def test_a_result_that_is_stored_into_itself_is_one_write(other_expert):
    [change] = other_expert._scene.changes
    assert change.after == "float32 3, written once"
    assert "had been written once when" in " ".join(other_expert.diagnose()[0].explanation.split())


def test_finding_and_why_say_alike_that_only_the_recomputation_used_a_parameter(other_expert):
    missing = [each for each in other_expert.diagnose() if each.slug == "gradient-missing"]
    alone, unused = "recomputations alone used them", "the recomputation of 0 alone used it"
    assert any(alone in " ".join(each.explanation.split()) for each in missing)
    assert other_expert.why("0.experts.1.up.weight").steps[-1].text.endswith(unused)
    assert "its module was not called" in other_expert.why("0.experts.2.up.weight").steps[-1].text
