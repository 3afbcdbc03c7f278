"""Writes past the version check in each step, a failure in one, and graphs that are lost."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import CheckpointError, checkpoint

import autogradviz

STEPS = 3


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        gate = torch.sigmoid(self.linear(x))
        y = x * gate
        gate.data.clamp_(min=0.4)
        return y.sum()


@pytest.fixture(scope="module")
def written():
    model = Gate()
    with autogradviz.record(model, keep_steps=STEPS) as trace:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(torch.rand(4, 8)).backward()
            optimizer.step()
    return trace


def test_each_write_of_a_line_is_counted(written):
    [finding] = [each for each in written.diagnose() if each.slug == "silent-write"]
    assert f"The line did so {STEPS} times" in finding.explanation


def test_what_a_line_wrote_is_marked_in_each_step(written):
    scene = written._viewer_scene
    broken = {ribbon.fold for ribbon in scene.ribbons if ribbon.state == "broken"}
    assert broken == set(range(STEPS))
    assert len([each for each in scene.storages if each.state == "broken"]) == STEPS
    [fact] = [each for each in scene.facts if each.topic == "writes"]
    assert not fact.text.startswith(("0 ", "1 "))


def test_a_write_by_an_alias_has_no_version_of_the_saved_tensor(written):
    scene = written._viewer_scene
    writes = [each for each in scene.storage_events if each.kind == "written" and not each.ok]
    assert len(writes) == STEPS
    assert {each.version for each in writes} == {None}
    reads = [each for each in scene.storage_events if each.kind == "unpacked"]
    assert {each.version for each in reads} <= {None, 0}


class Changing(nn.Module):
    """A module whose last recomputation differs from its forward."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        x = self.linear(x).sin()
        return x if self.calls == 2 * STEPS else x.cos()


def test_backward_stopped_in_the_step_that_failed_alone():
    model = Changing()
    kept = []
    with pytest.raises(CheckpointError), autogradviz.record(model, keep_steps=STEPS) as trace:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(STEPS):
            x = torch.rand(4, 8)
            kept.append((model.linear(x) * 2).exp())  # no backward reads it
            loss = checkpoint(model, x, use_reentrant=False).sum() + kept[-1].sum() * 0
            kept.append(model.linear(x).exp())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    folds = trace._viewer_scene.folds
    assert [fold.step for fold in folds][-1] == STEPS - 1
    for fold in folds:
        assert ("Backward stopped" in fold.sentence) <= (fold.step == STEPS - 1)
    assert any("never read" in fold.sentence for fold in folds[:-1])
    assert "Backward stopped" in folds[-1].sentence


def test_the_peak_of_a_step_is_a_lower_bound_if_a_graph_that_saves_was_lost():
    generator = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4)))
    critic = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Sigmoid()) for _ in range(16)))

    def imagine():
        return generator(torch.rand(4, 8))

    models = nn.ModuleDict({"generator": generator, "critic": critic})
    with autogradviz.record(models, keep_steps=2 * STEPS) as trace:
        optimizer = torch.optim.SGD(models.parameters(), lr=0.1)
        for _ in range(STEPS):
            fake = imagine()
            critic(fake.detach()).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            critic(imagine()).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    unreached = [each for each in trace.analysis.notices if "no backward reached" in each.message]
    assert len(unreached) == 1
    folds = trace._viewer_scene.folds
    assert len(folds) == 2 * STEPS
    bounds = [fold.sentence.startswith("At least") for fold in folds]
    assert bounds[:-2] == [True, False] * (STEPS - 1)
