"""Plans of steps with several backwards, compared with recordings that do what the plans say."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz.analysis.predict_memory import peaks_of_steps


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))


class Net(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(count))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.g, self.d, self.head = Net(4), Net(3), nn.Linear(16, 16)


def train_both(model, optimizer):
    """Train a discriminator and a generator with one forward of the generator."""
    fake = model.g(torch.rand(256, 16))
    (model.d(torch.rand(256, 16)).mean() - model.d(fake.detach()).mean()).backward()
    model.d(fake).mean().backward()
    optimizer.step()


def train_one_after_the_other(model, optimizer):
    """Train a discriminator, whose generated input keeps a graph that no backward reaches."""
    z = torch.rand(256, 16)
    fake = model.g(z)
    (model.d(torch.rand(256, 16)).mean() - model.d(fake.detach()).mean()).backward()
    optimizer.step()
    model.d(model.g(z)).mean().backward()
    optimizer.step()


def accumulate(model, optimizer):
    for size in (128, 256, 192):
        model.g(torch.rand(size, 16)).square().mean().backward()
    optimizer.step()


def train_with_two_losses(model, optimizer):
    y = model.g(torch.rand(256, 16))
    first, second = model.head(y).square().mean(), y.tanh().mean()
    first.backward(retain_graph=True)
    second.backward()
    optimizer.step()


def keep_graph(model, optimizer):
    loss = model.g(torch.rand(256, 16)).square().mean()
    loss.backward(retain_graph=True)
    optimizer.step()
    model.kept = loss


def train_with_penalty(model, optimizer):
    x = torch.rand(256, 16, requires_grad=True)
    loss = model.g(x).sum()
    [slope] = torch.autograd.grad(loss, x, create_graph=True)
    (loss + slope.square().sum()).backward()
    optimizer.step()


def record(step, modules=()):
    torch.manual_seed(0)
    model = Model()
    for name in modules:
        module = model.get_submodule(name)
        module.forward = partial(checkpoint, module.forward, use_reentrant=False)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with autogradviz.record(model) as trace:
        for _ in range(2):
            step(model, optimizer)
            optimizer.zero_grad()
    return trace


def measured(analysis, step):
    """Return the bytes at the peak of a step, and those that its backwards recomputed."""
    memory = analysis.memory
    peaks = peaks_of_steps(zip(memory.seqs, memory.nbytes, strict=True), analysis.steps)
    again = sum(
        each.nbytes
        for each in analysis.saved_memory.storages
        if each.recomputed and analysis.steps.at(each.holds[0].start_seq) == step
    )
    return peaks[step], again


STEPS = {
    train_both: {"g", "d"},
    train_one_after_the_other: {"d"},
    accumulate: {"g"},
    train_with_two_losses: {"g"},
    keep_graph: {"g"},
}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_plan_has_the_peak_and_the_recomputed_bytes_of_the_step_that_does_it(step):
    plans = record(step)._viewer_scene.budget_plans
    assert {name.split(".")[0] for plan in plans for name in plan.modules} == STEPS[step]
    last = [plan for plan in plans if plan.step == plans[-1].step]
    for plan in (last[0], last[-1]):
        real = record(step, plan.modules)
        assert (plan.peak_nbytes, plan.recomputed_nbytes) == measured(real.analysis, plan.step)


def test_each_backward_through_a_retained_graph_adds_the_time_of_a_recomputation():
    once, twice = record(keep_graph), record(train_with_two_losses)
    calls = [
        [call for call in trace._memory_model.calls.values() if call.module == "g.blocks.0"]
        for trace in (once, twice)
    ]
    assert [len(call.unpacked_seqs) for call in calls[0]] == [1, 1]
    assert [len(call.unpacked_seqs) for call in calls[1]] == [2, 2]


def test_there_is_no_plan_for_what_a_gradient_of_gradients_recomputes():
    scene = record(train_with_penalty)._viewer_scene
    assert scene.budget_plans == ()
    assert all(call.fixed for call in scene.module_calls if call.module.startswith("g"))
