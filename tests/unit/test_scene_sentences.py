"""Sentences that hold whether or not anything is wrong."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import CheckpointError, checkpoint

import autogradviz
from autogradviz.events import StepEnded
from autogradviz.scene.sentences_about_recording import _norm


def facts(trace):
    return {fact.text: fact.good for fact in trace._scene.facts}


def gradients(trace):
    return next(text for text in facts(trace) if "got a gradient" in text)


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head, self.aux = nn.Linear(3, 3), nn.Linear(3, 1), nn.Linear(3, 1)

    def forward(self, x):
        return self.head(self.body(x).tanh())


def train(model, *, clear=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with autogradviz.record(model) as trace:
        model(torch.rand(2, 3)).sum().backward()
        optimizer.step()
        if clear is not None:
            optimizer.zero_grad(set_to_none=clear)
    return trace


def test_parameters_without_a_gradient_are_counted_apart():
    text = gradients(train(Heads()))
    assert text.startswith("4 of 6 parameters got a gradient")
    assert text.endswith("2 got none")


def test_frozen_parameters_are_not_counted():
    model = Heads()
    model.aux.requires_grad_(requires_grad=False)
    text = gradients(train(model))
    assert text.startswith("4 of 4 parameters got a gradient")
    assert "none" not in text


def test_gradients_of_nodes_from_steps_that_are_gone_are_not_called_missing():
    model = Heads()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with autogradviz.record(model, keep_steps=2) as trace:
        for _ in range(3):
            loss = model(torch.rand(2, 3)).sum()  # while the loss before keeps its nodes alive
            loss.backward()
            optimizer.step()
    assert len(trace.log.of(StepEnded)) == 2
    assert not [text for text in facts(trace) if text.startswith("0 of 6 parameters")]


def test_gradients_that_were_cleared_in_place_are_not_called_zero():
    found = facts(train(nn.Linear(3, 1), clear=False))
    assert found["2 of 2 parameters got a gradient"]
    [cleared] = [text for text in found if "are zero now" in text]
    assert cleared.startswith("2 gradients are zero now: cleared at test_scene_sentences.py:")


def test_badges_of_gradients_that_were_cleared_in_place_say_that_there_was_one():
    trace = train(nn.Linear(3, 1), clear=False)
    assert {(each.grad, each.norm) for each in trace._scene.parameter_badges} == {("ok", None)}


def test_gradients_that_are_zero_and_were_not_cleared_are_called_zero():
    model = nn.Linear(3, 1)
    with autogradviz.record(model) as trace:
        (model(torch.rand(2, 3)) * 0).sum().backward()
    assert gradients(trace) == "0 of 2 parameters got a gradient; 2 got zeros"
    assert {each.grad for each in trace._scene.parameter_badges} == {"zero"}


def test_gradients_that_are_not_finite_are_counted_apart():
    model = nn.Linear(3, 1)
    with autogradviz.record(model) as trace:
        (model(torch.rand(2, 3)) * float("inf")).sum().backward()
    assert gradients(trace) == "0 of 2 parameters got a gradient; 2 got NaN or infinity"


def test_writes_after_the_save_are_counted():
    def step(x):
        y = x.exp()
        y.mul_(2)
        y.sum().backward()

    with pytest.raises(RuntimeError), autogradviz.record() as trace:
        step(torch.rand(3, requires_grad=True))
    [written] = [text for text in facts(trace) if "written" in text]
    assert written == "1 of 2 saved tensors were written between save and use"
    assert not facts(trace)[written]


def generator_that_is_only_detached():
    """Train a model on results of another one, whose graph is alive when its weights change."""
    source, model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), nn.Linear(3, 1)
    optimizer = torch.optim.SGD(source.parameters(), lr=0.1)
    for parameter in source.parameters():
        parameter.grad = torch.ones_like(parameter)
    with autogradviz.record(nn.ModuleList([source, model])) as trace:
        fake = source(torch.rand(2, 3))  # the line
        model(fake.detach()).sum().backward()
        optimizer.step()
    return trace, fake


def test_writes_to_what_no_backward_read_are_no_writes_before_a_use():
    trace, _ = generator_that_is_only_detached()
    [written] = [text for text in facts(trace) if "written" in text]
    assert written == (
        "0 of 4 saved tensors were written between save and use; "
        "1 that no backward read was written"
    )
    assert facts(trace)[written]


def test_what_is_held_names_the_line_whose_graph_no_backward_used():
    trace, fake = generator_that_is_only_detached()
    [fact] = [each for each in trace._scene.facts if each.topic == "memory"]
    line = generator_that_is_only_detached.__code__.co_firstlineno + 7
    assert fact.text == (
        f"48 B of saved tensors are still held at the end: no backward ran through the graph of "
        f"test_scene_sentences.py:{line}. no_grad() there, or detach() of its result, frees them"
    )
    held = [each for each in trace._scene.storages if each.storage_id == fact.storage_id]
    assert [each.state for each in held] == ["held"]
    del fake


def test_what_a_used_graph_holds_names_no_line():
    x = torch.rand(3, requires_grad=True)
    with autogradviz.record() as trace:
        y = x.exp().sum()
        y.backward(retain_graph=True)
    [fact] = [each for each in trace._scene.facts if each.topic == "memory"]
    assert fact.text == "12 B of saved tensors are still held at the end"


def test_graphs_of_earlier_steps_that_stay_alive_are_no_released_memory():
    model, total = nn.Linear(3, 3), 0.0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with autogradviz.record(model) as trace:
        for _ in range(4):
            loss = model(torch.rand(2, 3)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total = total + loss
    assert [each.slug for each in trace.diagnose()] == ["graph-kept"]
    [fact] = [each for each in trace._scene.facts if each.topic == "memory"]
    assert fact.text.startswith("All saved tensors were released: ")
    assert fact.text.endswith(" saved; graphs of earlier steps stay alive")
    assert not fact.good


def test_memory_and_recomputations_agree_with_the_recording():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    with autogradviz.record(model) as trace:
        x = torch.rand(2, 3, requires_grad=True)
        checkpoint(model, x, use_reentrant=False).sum().backward()
    found = facts(trace)
    assert found["1 of 1 recomputations ran the same ops as the forward"]
    assert not any("still held" in text for text in found)


class _Remembers(nn.Module):
    def __init__(self):
        super().__init__()
        self.mask = None

    def forward(self, x):
        if self.mask is None:
            self.mask = torch.ones(2, 3, dtype=torch.bool)
            x = x.masked_fill(self.mask, 0.5)
        return x.exp()


def test_a_save_that_recomputation_did_not_repeat_was_not_written():
    with pytest.raises(CheckpointError), autogradviz.record() as trace:
        x = torch.rand(2, 3, requires_grad=True)
        checkpoint(_Remembers(), x, use_reentrant=False).sum().backward()
    [written] = [text for text in facts(trace) if "written" in text]
    assert written.startswith("0 of ")
    title = (
        r"self\.mask was set by line \d+, so _Remembers\.forward recomputed 1 saved tensor, not .*"
    )
    assert re.fullmatch(title, trace.diagnose()[0].title)


class _DetachesABranch(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        x = self.first(x)
        return x + self.second(x.detach())


def test_a_line_that_cuts_a_path_of_a_healthy_step_is_a_fact():
    model = _DetachesABranch()
    with autogradviz.record(model) as trace:
        model(torch.rand(2, 3)).sum().backward()
    assert not trace.diagnose()
    scene = trace._viewer_scene
    [fact] = [each for each in scene.facts if each.lines]
    assert fact.text.startswith("1 line cuts a gradient path (test_scene_sentences.py:")
    assert fact.text in str(trace).replace("\n", " ")
    wrong = next(each for each in scene.questions if "is wrong" in each.pattern)
    assert wrong.sentence == f"No problems found, but {fact.text}."
    assert wrong.line == "return x + self.second(x.detach())"


def test_the_node_that_reads_values_without_a_graph_is_known():
    model, other = nn.Linear(3, 1), nn.Linear(3, 1)
    with autogradviz.record(nn.ModuleList([model, other])) as trace:
        x = torch.rand(2, 3)
        score = torch.tensor(other(x).mean().item())
        (model(x).sum() + 0.1 * score).backward()
    scene = trace._scene
    [finding] = scene.findings
    assert [scene.nodes[at].name for at in finding.nodes] == ["AddBackward0"]


def numbers(trace):
    return {(each.topic, each.caption): each.figure for each in trace._scene.evidence}


def test_what_was_checked_has_the_numbers_of_the_sentences():
    model = Heads()
    trace = train(model)
    found = numbers(trace)
    saved = len(trace.analysis.saved)
    assert found["gradients", "parameters got a gradient"] == "4 of 6"
    assert found["writes", "saved tensors were written between save and use"] == f"0 of {saved}"
    assert found["writes", "reads found the version that was saved"] == f"{saved} of {saved}"
    assert found["checkpoints", "checkpoint regions"] == "0"
    assert found["memory", "held by graphs of earlier steps"] == "0 B"
    [share] = {each.share for each in trace._scene.evidence if each.figure == "4 of 6"}
    assert share == pytest.approx(4 / 6)


def test_what_is_held_without_a_finding_is_no_part_that_is_wrong():
    model, losses = nn.Linear(3, 1), []
    with autogradviz.record(model) as trace:
        losses.append(model(torch.rand(2, 3)).square().sum())
        losses[0].backward(retain_graph=True)
    assert not trace.diagnose()
    shares = {each.caption.partition(" saved ")[2]: each.share for each in trace._scene.evidence}
    assert shares["are held at the end"] == -1
    with autogradviz.record(model) as trace:
        model(torch.rand(2, 3)).square().sum().backward()
    shares = {each.caption.partition(" saved ")[2]: each.share for each in trace._scene.evidence}
    assert shares["are held at the end"] == 1


def test_large_and_small_norms_have_two_digits():
    assert [*map(_norm, (0.0123, 1.26, 234.0, 34_567.0, 2.5e-7, 1.26e9))] == [
        *("0.012", "1.3", "230", "35,000", "2.5e-7", "1.3e9")
    ]


def test_gradients_that_are_not_finite_are_no_evidence_of_finite_ones():
    model = nn.Linear(3, 1)
    with autogradviz.record(model) as trace:
        (model(torch.rand(2, 3)) * float("inf")).sum().backward()
    assert numbers(trace)["gradients", "gradients are finite"] == "0 of 2"


def test_recomputations_that_ran_the_same_ops_are_counted():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    with autogradviz.record(model) as trace:
        x = torch.rand(2, 3, requires_grad=True)
        checkpoint(model, x, use_reentrant=False).sum().backward()
    found = numbers(trace)
    assert found["checkpoints", "recomputations ran the ops of the forward"] == "1 of 1"


class _Documented(nn.Module):
    def forward(self, x):
        """Return the exponential.

        A text of several lines.
        """
        x = x.exp()
        return x.sin()


def test_lines_of_docstrings_are_known():
    with autogradviz.record() as trace:
        _Documented()(torch.rand(3, requires_grad=True)).sum().backward()
    lines = [each for each in trace._scene.lines if each.filename == __file__]
    texts = {each.text.strip(): each.docstring for each in lines}
    assert texts["A text of several lines."]
    assert not texts["x = x.exp()"]
    assert not texts["return x.sin()"]
