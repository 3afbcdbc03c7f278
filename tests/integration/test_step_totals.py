"""Saved bytes and gradient norms of each step, of real recordings."""

from __future__ import annotations

import pytest
import torch
from step_peaks import peaks_of_steps
from torch import nn
from torch.utils.checkpoint import checkpoint
from training_programs import PROGRAMS

import autogradviz
from autogradviz.event_log import load, read_summary, step_totals
from autogradviz.recorder.retention import flight_recorder


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_saved_bytes_are_those_of_the_memory_curve(name):
    trace = PROGRAMS[name]()
    assert step_totals(trace.log).saved_nbytes == peaks_of_steps(trace.analysis)


def train(steps, path=None, engine="auto", **options):
    """Record a training with two optimizer steps of unequal batches each; return the norms."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    norms = []
    with autogradviz.record(model, path=path, engine=engine, **options) as trace:
        for step in range(steps):
            optimizer.zero_grad()
            for part in range(1 + step % 2):
                hidden = checkpoint(model[0], torch.randn(6 + step + part, 4), use_reentrant=False)
                model[2](model[1](hidden)).square().sum().backward()
            optimizer.step()
            gradients = [each.grad for each in model.parameters()]
            norms.append(float(nn.utils.get_total_norm(gradients)))
    return trace, norms


@pytest.mark.parametrize("engine", ["python", "native"])
def test_gradient_norms_are_those_of_torch(native, tmp_path, monkeypatch, engine):
    monkeypatch.setattr(flight_recorder, "NORMS_SHARE", 1e9)  # read at the end of every step
    path = tmp_path / "steps.agv"
    _, norms = train(6, path, engine)
    log = load(path)
    totals = step_totals(log)
    assert totals.gradient_norms == pytest.approx(norms, rel=1e-5)
    trace = autogradviz.load(path)
    assert totals.saved_nbytes == peaks_of_steps(trace.analysis)
    assert len(set(totals.saved_nbytes)) > 2


@pytest.mark.parametrize("engine", ["python", "native"])
def test_steps_without_readings_have_no_norm(native, engine):
    trace, norms = train(4, engine=engine)
    totals = step_totals(trace.log)
    assert totals.gradient_norms[:3] == (None,) * 3
    assert totals.gradient_norms[3] == pytest.approx(norms[3], rel=1e-5)


def test_file_of_a_rank_has_the_totals_of_its_steps(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    trace, norms = train(3)
    trace.save(tmp_path / "rank.agv")
    totals = read_summary(tmp_path / "rank.agv").totals
    assert totals == step_totals(trace.log)
    assert totals.saved_nbytes == peaks_of_steps(trace.analysis)
    assert totals.gradient_norms[2] == pytest.approx(norms[2], rel=1e-5)
