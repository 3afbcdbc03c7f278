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
