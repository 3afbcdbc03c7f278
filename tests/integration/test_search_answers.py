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
    times = {row.module: 0 for row in scene.call_times}
    for row in scene.call_times:
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


class Filled(nn.Module):
    """Has a variable and a module of one name, and a tensor that is written in place."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(4, 4)
        self.factor = 0.5

    def forward(self, x):
        planes = torch.zeros(2, 4)
        planes[0] = 1
        planes[1] = 2
        gate = self.gate(x + planes)
        scaled = 0.5 * gate.tanh()
        fresh = torch.ones(3)
        return scaled.exp().sum() + fresh.sum()


def trained():
    model = Filled()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with autogradviz.record(model) as trace:
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.rand(2, 4)).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
            optimizer.step()
    return trace


def test_who_wrote_names_the_last_write_first():
    trace = trained()
    answer = ask(trace, "who wrote planes")
    assert re.fullmatch(
        r"copy_ at test_search_answers.py:\d+ wrote planes in place, "
        r"after \S+ at test_search_answers.py:\d+ \(2 tensors of this name\)\.",
        re.sub("fill_", "copy_", answer.sentence),
    )
    assert answer.line.strip() == "planes[1] = 2"
    first, second, *_ = trace.why("planes").steps
    assert first.statement == "planes = torch.zeros(2, 4)"
    assert second.text.endswith("wrote it in place, the last of 2 writes")
    assert second.location.lineno == answer.lineno


def test_who_wrote_knows_tensors_that_no_node_saved_and_says_what_it_does_not_know():
    trace = trained()
    answer = ask(trace, "who wrote fresh")
    assert answer.sentence.startswith("Nothing wrote fresh in place")
    assert answer.line.strip() == "fresh = torch.ones(3)"
    nothing = ask(trace, "who wrote something else")
    assert nothing.sentence.startswith(
        "The report lists no tensor, parameter or variable of this name"
    )


def test_who_wrote_a_parameter_is_its_optimizer_and_a_gradient_its_backward_and_clipping():
    trace = trained()
    for name in ("gate.weight", "filled.gate.weight"):
        answer = ask(trace, f"who wrote {name}")
        assert re.match(
            r"The optimizer wrote gate.weight last at .*, 2 steps in all", answer.sentence
        )
        assert answer.line.strip() == "optimizer.step()"
    answer = ask(trace, "who wrote gate.weight.grad")
    assert re.match(
        r"The backward at test_search_answers.py:\d+ gave gate.weight its gradient, the last of 2; "
        r"\w+ at test_search_answers.py:\d+ wrote it in place afterwards\.",
        answer.sentence,
    )
    assert "clip_grad_norm_" in answer.line


def test_a_variable_with_the_name_of_a_module_is_named_as_both():
    first, second, *_ = trained().why("gate").steps
    assert (
        first.text
        == "gate is a module and a variable, which was last set here; the last op is addmm"
    )
    assert first.statement == "gate = self.gate(x + planes)"
    assert second.text.startswith("2 of 2 parameters of gate: ")


def test_a_number_that_a_product_saves_has_not_the_name_of_the_other_operand():
    weight = torch.rand(3, requires_grad=True)
    factors = {"a": 0.5}
    with autogradviz.record() as trace:
        value = weight.exp()
        (factors["a"] * value).sum().backward()
    scalars = [each for each in trace._viewer_scene.storages if each.nbytes == 8]
    assert [each.name for each in scalars if each.name == "value"] == []
    assert ask(trace, "who wrote value").line.strip() == "value = weight.exp()"


def test_memory_names_the_line_that_keeps_most_and_the_module_with_what_is_in_it():
    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.wide = Blocks()
            self.small = nn.Sequential(nn.Linear(8, 8), nn.Tanh())

        def forward(self, x):
            return self.wide.wide(self.small(x)).exp().sum()

    for given in (True, False):
        model = Deep()
        with autogradviz.record(model if given else None) as trace:
            model(torch.rand(64, 8)).backward()
        modules = ask(trace, "which module fills memory")
        prefix = "" if given else "Deep."
        assert modules.labels == (f"{prefix}wide.wide", f"{prefix}small", "Deep")
        assert modules.sentence.startswith(f"{prefix}wide.wide holds ")
        memory = ask(trace, "what fills memory")
        assert re.search(r"all of it by test_search_answers.py:\d+\.", memory.sentence)
        assert memory.lineno


def test_a_module_that_is_never_called_is_named_by_the_line_that_makes_it():
    class Unused(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 4)
            self.extra = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))

        def forward(self, x):
            return self.head(x).sum()

    model = Unused()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with autogradviz.record(model) as trace:
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.rand(2, 4)).backward()
            optimizer.step()
    line = "self.extra = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))"
    assert ask(trace, "which line broke it").line.strip() == line
    [finding] = trace.diagnose()
    assert (finding.culprit, finding.victim.text) == (None, line)
