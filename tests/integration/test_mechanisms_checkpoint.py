"""Options and special cases of checkpoint are recorded and drawn."""

from functools import partial

import pytest
import torch
from drawing_summary import boxes, leaf, marked_line
from torch.utils.checkpoint import (
    CheckpointPolicy,
    GraphExecGroup,
    checkpoint,
    create_selective_checkpoint_contexts,
    set_checkpoint_debug_enabled,
)

import autogradviz
from autogradviz.demo.gpt import Config
from autogradviz.demo.run import Training
from autogradviz.events import (
    BackwardStarted,
    RecomputeStarted,
    RegionEntered,
    TensorReleased,
    TensorSaved,
)

line_of = partial(marked_line, __file__)


def work(x, scale=1.0):
    return (x.exp() * scale).sin()


def outcomes(trace):
    """Return the outcome of every recomputation, per region."""
    return [[again.outcome for again in region.recomputations] for region in trace.checkpoints()]


def test_keyword_arguments_are_passed_to_both_runs():
    with autogradviz.record() as trace:
        checkpoint(work, leaf(), scale=2.0, use_reentrant=False).sum().backward()
    assert outcomes(trace) == [["early_stop"]]
    ops = [[op.name for op in run.ops] for run in trace.checkpoints()[0].recomputations]
    assert ops == [["exp", "mul"]]
    assert [row.status for row in trace._scene.diffs] == ["same", "same", "not_rerun"]


@pytest.mark.usefixtures("quiet")
def test_global_debug_option_is_recorded():
    with set_checkpoint_debug_enabled(True), autogradviz.record() as trace:
        y = checkpoint(work, leaf(), use_reentrant=False)
    assert [event.debug for event in trace.log.of(RegionEntered)] == [True]
    assert [region.options for region in trace._scene.regions] == ["debug=True"]
    del y


def test_backward_inside_a_region_runs_again_in_the_recomputation():
    w = leaf()

    def inner(x):
        hidden = x * w
        (slope,) = torch.autograd.grad(hidden.sum(), [hidden], create_graph=True)  # <inside>
        return hidden.exp() * slope

    with autogradviz.record() as trace:
        checkpoint(inner, leaf(), use_reentrant=False).sum().backward()
    first, outer, again = trace.log.of(BackwardStarted)
    assert [event.accumulate for event in (first, outer, again)] == [False, True, False]
    assert again.parent_backward_id == outer.backward_id
    calls = [span for span in trace._scene.spans if span.kind == "backward"]
    assert [(span.lineno, span.depth) for span in calls if span.label.startswith("autograd")] == [
        (line_of("inside"), 0),
        (line_of("inside"), 1),
    ]
    assert {row.status for row in trace._scene.diffs} <= {"same", "not_rerun"}


def test_region_is_recomputed_for_each_backward():
    with autogradviz.record() as trace:
        loss = checkpoint(work, leaf(), use_reentrant=False).sum()
        loss.backward(retain_graph=True)
        loss.backward()
    assert outcomes(trace) == [["early_stop", "early_stop"]]
    assert [region.recomputes for region in trace._scene.regions] == [2]
    assert ("SinBackward0", "ran", 2) in boxes(trace)
    assert len([span for span in trace._scene.spans if span.kind == "recompute"]) == 2


def test_deeply_nested_regions_are_recorded_and_drawn():
    def deep(x, depth):
        if depth:
            x = checkpoint(deep, x, depth - 1, use_reentrant=False)
        return x.exp().sin()

    with autogradviz.record() as trace:
        checkpoint(deep, leaf(), 3, use_reentrant=False).sum().backward()
    # Each recomputation of an outer region enters the inner regions again, after the forward ones.
    assert [region.parent for region in trace._scene.regions][:4] == [-1, 0, 1, 2]
    assert outcomes(trace)[0] == ["early_stop"]
    again = [span for span in trace._scene.spans if span.kind == "recompute"]
    assert len(again) == len(trace.log.of(RecomputeStarted)) == 4
    assert {row.status for row in trace._scene.diffs} <= {"same", "not_rerun"}


def test_backwards_in_an_exec_group_share_a_recomputation():
    def two(x):
        return x.exp(), x.sin()

    with autogradviz.record() as trace:
        a, b = checkpoint(two, leaf(), use_reentrant=False)
        with GraphExecGroup():
            a.sum().backward(retain_graph=True)
            b.sum().backward()
    assert outcomes(trace) == [["early_stop"]]
    assert [event.exec_group for event in trace.log.of(RecomputeStarted)] == [0]
    assert [region.options for region in trace._scene.regions] == ["GraphExecGroup 0"]


def test_modified_tensor_in_a_selective_cache_is_recorded_and_drawn():
    def policy(context, op, *args, **kwargs):
        save = op is torch.ops.aten.exp.default
        return CheckpointPolicy.MUST_SAVE if save else CheckpointPolicy.PREFER_RECOMPUTE

    def selected(x):
        y = x.exp()
        z = y.sin()
        y.detach().mul_(2)  # <writes>
        return z.cos()

    context = partial(create_selective_checkpoint_contexts, policy)
    with pytest.raises(RuntimeError, match="mutated"), autogradviz.record() as trace:
        checkpoint(selected, leaf(), use_reentrant=False, context_fn=context).sum().backward()
    first = trace.diagnose()[0]
    assert (first.slug, first.culprit.lineno) == ("selective-cache-mutated", line_of("writes"))
    assert next(row.policy for row in trace._scene.diffs) == "must save"


def test_recomputed_saves_are_held_until_the_forward_save_is_released():
    """The recomputed graph is freed at once; reuse of its memory must not release its saves."""
    training = Training(Config(layers=3))
    training.step()
    curves = set()
    for _ in range(5):
        with autogradviz.record(training.model) as trace:
            training.step()
        replayed = {e.saved_id for e in trace.log.of(TensorSaved) if e.packed_by == "recompute"}
        assert replayed
        assert not replayed & {e.saved_id for e in trace.log.of(TensorReleased)}
        curves.add(trace.analysis.memory.nbytes)
    assert len(curves) == 1


class CountedNorm(torch.nn.BatchNorm1d):
    """Updates its running statistics in every second call only."""

    def forward(self, x):
        if self.num_batches_tracked % 2 == 0:
            return super().forward(x)  # CULPRIT
        return torch.nn.functional.layer_norm(x, x.shape[-1:]) * self.weight


class Normed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(self.linear(x))


def replace_norm(block):
    block.norm = CountedNorm(4)  # assigns the attribute, before the recording


def test_recorded_write_to_a_buffer_is_the_culprit_rather_than_an_assignment_of_its_module():
    model = Normed()
    replace_norm(model)
    with pytest.raises(torch.utils.checkpoint.CheckpointError):
        with autogradviz.record(model) as trace:
            checkpoint(model, torch.rand(3, 4), use_reentrant=False).sum().backward()
    finding = trace.diagnose()[0]
    assert "num_batches_tracked" in finding.title
    assert finding.culprit.text == "return super().forward(x)  # CULPRIT"


def test_two_exec_groups_one_after_the_other_have_two_numbers():
    w = torch.ones(3, requires_grad=True)
    with autogradviz.record() as trace:
        for _ in range(2):
            loss = checkpoint(torch.exp, w, use_reentrant=False).sum()
            with GraphExecGroup():
                loss.backward()
    groups = [event.exec_group for event in trace.log.of(RecomputeStarted)]
    assert groups == [0, 1]
