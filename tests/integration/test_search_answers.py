"""Answers of the search field, and of ``why`` to the same questions, for recorded programs."""

from __future__ import annotations

import contextlib
import re

import torch
from torch import nn

import autogradviz


def ask(trace, question):
    """Return the stored answer of a report to a question."""
    found = (q for q in trace._viewer_scene.questions if re.search(q.pattern, question.lower()))
    return next(found)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Sequential(nn.Linear(8, 8), nn.Tanh())

    def forward(self, x):
        return self.second(self.first(x).exp()).sin().sum()


def recorded(*, given):
    model = Net()
    with autogradviz.record(model if given else None) as trace:
        model(torch.rand(4, 8)).backward()
    return trace


def test_names_of_modules_may_have_or_lack_the_name_of_the_model():
    for trace in (recorded(given=True), recorded(given=False)):
        plain, with_class = (
            trace.predict_memory(checkpoint=name) for name in ("second", "Net.second")
        )
        assert plain == with_class
        assert len(plain.checkpoint) == 1
        assert trace.saved_bytes("second") == trace.saved_bytes("Net.second")


def sums_by_module(trace):
    scene = trace._viewer_scene
    times = {row.module: 0 for row in scene.module_times}
    for row in scene.module_times:
        times[row.module] += row.count
    sizes = dict.fromkeys((row.module for row in scene.counted_storages), 0)
    for row in scene.counted_storages:
        sizes[row.module] += row.nbytes
    places = {(node.module, node.name) for node in scene.nodes}
    return times, sizes, places


def test_ops_of_the_models_own_forward_belong_to_its_class_with_and_without_a_model():
    given, found = (sums_by_module(recorded(given=given)) for given in (True, False))
    assert ("Net", "ExpBackward0") in given[2]
    assert ("Net", "ExpBackward0") in found[2]
    for own, other in zip(given[:2], found[:2], strict=True):
        assert own == {name.removeprefix("Net."): number for name, number in other.items()}


class Stopped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("stopped")


class Blocks(nn.Module):
    """Backward stops after ``last``, before ``wide``, which holds most."""

    def __init__(self):
        super().__init__()
        self.wide = nn.Sequential(nn.Linear(8, 512), nn.Tanh(), nn.Linear(512, 8), nn.Tanh())
        self.last = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 8), nn.Tanh())

    def forward(self, x):
        return self.last(Stopped.apply(self.wide(x))).sum()


def test_the_best_plan_is_offered_if_backward_stopped_before_its_module():
    model = Blocks()
    with contextlib.suppress(RuntimeError), autogradviz.record(model) as trace:
        model(torch.rand(64, 8)).backward()
    plans = {plan.modules: plan for plan in trace._viewer_scene.budget_plans}
    best = min(plans.values(), key=lambda plan: plan.peak_nbytes)
    peak = trace.predict_memory(checkpoint="wide").predicted_peak
    assert best.modules == ("wide",)
    assert (best.peak_nbytes, best.added_ns) == (peak, -1)
    sentence = ask(trace, "what does checkpointing save").sentence
    assert sentence.startswith("Checkpointing wide would hold ")
    assert sentence.endswith("the time that it adds is not known, as backward did not get there.")


class FailsLate(nn.Module):
    """Its third backward stops between ``last`` and ``first``."""

    def __init__(self):
        super().__init__()
        self.first, self.last, self.calls = nn.Linear(4, 4), nn.Linear(4, 4), 0

    def forward(self, x):
        h = self.first(x)
        self.calls += 1
        return self.last(Stopped.apply(h) if self.calls == 3 else h).sum()


def test_a_parameter_that_was_cleared_before_the_backward_stopped_has_no_gradient_at_the_end():
    model = FailsLate()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with contextlib.suppress(RuntimeError), autogradviz.record(model) as trace:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.rand(2, 4)).backward()
            optimizer.step()
    assert (model.first.weight.grad is None, model.last.weight.grad is None) == (True, False)
    answer = trace.why("first.weight")
    first, second, last, *_ = answer.steps
    assert answer.question == "no gradient"
    assert re.fullmatch(
        r"first.weight is None at the end: cleared at test_search_answers.py:\d+; "
        r"the backward of step 2 stopped before it",
        first.text,
    )
    assert first.statement == "optimizer.zero_grad()"
    assert second.text == "before that, it got a gradient, 2 times"
    assert last.text.endswith("before it reached first.weight")
    assert trace.why("last.weight").question == "how it got its gradient"
    stored = {each.target: each.question for each in trace._viewer_scene.answers}
    assert stored["first.weight"] == "no gradient"


def test_a_parameter_that_was_not_reached_is_not_called_one_without_an_optimizer():
    model = FailsLate()
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (model.last, model.first)]
    with contextlib.suppress(RuntimeError), autogradviz.record(model) as trace:
        model.calls = 1
        model(torch.rand(2, 4)).backward()
        optimizers[0].step()
        optimizers[1].zero_grad()
        model(torch.rand(2, 4)).backward()
        optimizers[1].step()
    answer = trace.why("first.weight")
    assert answer.question == "no gradient"
    assert answer.steps[0].statement == "optimizers[1].zero_grad()"
