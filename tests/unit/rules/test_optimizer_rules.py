"""Rules about optimizers: steps without gradients, parameters that none has, graphs that stay."""

from __future__ import annotations

import pytest
from make_log import (
    accumulated,
    backward,
    backward_ended,
    fact,
    finished,
    leaf,
    node,
    op,
    parameter,
    recorder_limited,
    released,
    saved,
    started,
    tensor,
)
from run_rule import lines, run_rule

from autogradviz import events as e
from autogradviz.diagnose.rules.graph_kept_across_steps import graph_kept
from autogradviz.diagnose.rules.optimizer_steps_clipping_and_clearing import (
    clip_without_gradients,
    gradients_discarded,
    optimizer_never_reached,
    step_without_gradients,
)
from autogradviz.diagnose.rules.parameters_not_updated import parameter_not_updated

GRADIENT = 50  # of tensor 1


def stepped(*tensor_ids, gradients, at="t.py:9", name="SGD"):
    return fact(
        e.OptimizerStepped,
        optimizer_name=name,
        tensor_ids=tensor_ids,
        gradient_count=gradients,
        at=at,
    )


def step_ended(step, end_seq):
    return fact(e.StepEnded, step=step, end_seq=end_seq)


def gradient_of(leaf_node, tensor_id, gradient, *, number=1):
    """Return a backward that accumulates a gradient into a leaf."""
    return [
        backward(number, roots=(leaf_node,), at="t.py:5"),
        started(leaf_node, backward=number, inputs=(gradient,)),
        finished(leaf_node, backward=number),
        accumulated(leaf_node, tensor_id, backward=number),
        backward_ended(number),
    ]


# --- step-without-gradients ---------------------------------------------------------------------


def update(*between, gradients, leading=(), number=1):
    return [
        leading,
        gradient_of(8, 1, GRADIENT, number=number),
        between,
        stepped(1, gradients=gradients),
    ]


def without_gradients(*facts):
    return run_rule(step_without_gradients, leaf(8, 1), facts)


def never_reached(*facts):
    return run_rule(optimizer_never_reached, leaf(8, 1), facts)


def zeros(at="t.py:7"):
    return op("zero_", (GRADIENT,), inputs=(GRADIENT,), writes=(GRADIENT,), at=at)


def writes_parameter(at="t.py:6"):
    return op("add_", (1,), inputs=(1, GRADIENT), writes=(1,), at=at)


def test_step_after_the_gradients_were_removed_is_reported():
    (finding,) = without_gradients(update(gradients=0), update(gradients=0, number=2))
    assert finding.slug == "step-without-gradients"
    assert lines(finding) == ("t.py:9", "t.py:9")
    assert finding.confidence == "likely"
    assert finding.title == "SGD steps without gradients: they were cleared after backward"
    assert "in each of the 2 recorded steps" in finding.explanation


def test_step_after_the_gradients_were_filled_with_zeros_is_reported():
    (finding,) = without_gradients(update(zeros(), gradients=1))
    assert lines(finding) == ("t.py:7", "t.py:9")


def test_step_on_an_earlier_line_than_backward_is_reported():
    (finding,) = without_gradients(
        stepped(1, gradients=0, at="t.py:3"),
        gradient_of(8, 1, GRADIENT),
        stepped(1, gradients=0, at="t.py:3"),
    )
    assert finding.title == "SGD steps before backward computes the gradients of its iteration"
    assert lines(finding) == ("t.py:3", "t.py:3")


@pytest.mark.parametrize(
    "program",
    {
        "with gradients": update(gradients=1),
        "the first step of a warm-up": [stepped(1, gradients=0), update(gradients=1)],
        "without a backward of its own": [gradient_of(8, 2, 51), stepped(1, gradients=0)],
        "zeros before the backward": update(leading=zeros(), gradients=1),
        "zeros, then another gradient": update(
            zeros(), gradient_of(8, 1, GRADIENT, number=3), gradients=1
        ),
        "updated in a hook or a closure": update(writes_parameter(), gradients=0),
        "one step of several": [update(gradients=0), update(gradients=1, number=2)],
        "gradients that could not be read": update(gradients=None),
        "an optimizer around another one": [update(gradients=1), stepped(1, gradients=0)],
    }.values(),
)
def test_correct_steps_give_no_finding(program):
    assert without_gradients(program) == []


def test_optimizer_whose_tensors_never_get_a_gradient_is_a_hint():
    steps = [stepped(3, gradients=0), stepped(3, gradients=0)]
    (finding,) = never_reached(gradient_of(8, 1, GRADIENT), steps)
    assert finding.title == "SGD steps, and none of its tensors ever got a gradient"
    assert (lines(finding), finding.confidence) == (("t.py:9", "t.py:9"), "hint")
    written = op("add_", (3,), inputs=(3,), writes=(3,), at="t.py:8")
    assert never_reached(gradient_of(8, 1, GRADIENT), steps, written) == []
    assert never_reached(steps) == []


# --- clip-without-gradients ---------------------------------------------------------------------

CLIP = ("torch/nn/utils/clip_grad.py:9", "t.py:6")


def clipping(*facts):
    return run_rule(clip_without_gradients, leaf(8, 1), facts, gradient_of(8, 1, GRADIENT))


def test_clipping_without_gradients_is_reported():
    nothing = op("lift_fresh", (70,), inputs=(70,), at=CLIP)
    (finding,) = clipping(nothing, nothing)
    assert finding.slug == "clip-without-gradients"
    assert (str(finding.culprit), finding.confidence) == ("t.py:6", "hint")
    assert "in each of its 2 calls" in finding.explanation


def test_clipping_that_ever_finds_gradients_gives_no_finding():
    nothing = op("lift_fresh", (70,), inputs=(70,), at=CLIP)
    norm = op("linalg_vector_norm", (71,), inputs=(GRADIENT,), at=CLIP)
    assert clipping(nothing, norm) == []
    assert clipping(op("lift_fresh", (70,), inputs=(70,), at="t.py:6")) == []


# --- gradients-discarded ------------------------------------------------------------------------


def accumulation(*between, adds=False, others=(), also=(), number=1):
    """Run two backwards before a step; each has a gradient of its own."""
    first, second = 50 + 2 * number, 51 + 2 * number
    add = op("add_", (first,), inputs=(first, second), writes=(first,), phase="backward", node=8)
    backward_id = 10 * number
    return [
        gradient_of(8, 1, first, number=backward_id),
        others,
        between,
        backward(backward_id + 1, roots=(8,), at="t.py:5"),
        started(8, backward=backward_id + 1, inputs=(second,)),
        add if adds else (),
        finished(8, backward=backward_id + 1),
        accumulated(8, 1, backward=backward_id + 1),
        backward_ended(backward_id + 1),
        also,
        stepped(1, gradients=1),
    ]


def discarded(*facts):
    return run_rule(gradients_discarded, leaf(8, 1), leaf(9, 2), facts)


def test_gradients_of_all_but_the_last_backward_that_are_cleared_are_reported():
    (finding,) = discarded(accumulation(), accumulation(number=2))
    assert finding.slug == "gradients-discarded"
    assert finding.title.startswith("Only the last of 2 backward passes has an effect")
    assert (lines(finding), finding.confidence) == (("t.py:5", "t.py:5"), "hint")


@pytest.mark.parametrize(
    "program",
    {
        "accumulated": [accumulation(adds=True), accumulation(adds=True, number=2)],
        "one skipped batch": [accumulation(), accumulation(adds=True, number=2)],
        "a single step": accumulation(),
        "read": [
            accumulation(op("clone", (80 + n,), inputs=(50 + 2 * n,), at="t.py:6"), number=n)
            for n in (1, 2)
        ],
        "an adversarial input": [
            accumulation(others=accumulated(9, 2, backward=10 * n), number=n) for n in (1, 2)
        ],
        "two optimizers": [accumulation(also=stepped(2, gradients=1), number=n) for n in (1, 2)],
        "parameters moved in between": [
            accumulation(op("add_", (1,), inputs=(1,), writes=(1,), at="t.py:6"), number=n)
            for n in (1, 2)
        ],
    }.values(),
)
def test_gradients_that_are_kept_or_used_give_no_finding(program):
    assert discarded(program) == []


# --- parameter-not-updated ----------------------------------------------------------------------


def not_updated(*facts, gradients=1, first=(), in_no_optimizer=(1,)):
    return run_rule(
        parameter_not_updated,
        [tensor(number, (2, 4)) for number in (1, 2, GRADIENT, 60)],
        parameter(1, "head.weight"),
        parameter(2, "body.weight"),
        first,
        leaf(8, 1),
        op("mm", (3,), inputs=(2, 1), nr=0, at="t.py:2"),
        gradient_of(8, 1, GRADIENT),
        facts,
        stepped(2, gradients=gradients),
        fact(e.NoOptimizerFound, tensor_ids=in_no_optimizer),
    )


def test_parameter_in_no_optimizer_is_reported():
    (finding,) = not_updated()
    assert finding.slug == "parameter-not-updated"
    assert finding.title == "head.weight gets a gradient, and no optimizer updates it"
    assert lines(finding) == ("t.py:5", "t.py:5")
    assert finding.confidence == "hint"
    assert "32 B of gradients" in finding.explanation


def test_optimizer_whose_tensors_get_no_gradient_is_mentioned():
    (finding,) = not_updated(gradients=0)
    assert "it changes nothing" in finding.explanation


def clips(at):
    return [
        op("linalg_vector_norm", (70,), inputs=(GRADIENT,), at=at),
        op("mul_", (GRADIENT,), inputs=(GRADIENT, 70), writes=(GRADIENT,), at=at),
    ]


def test_clipping_and_norms_do_not_use_a_gradient():
    number = tensor(70, (), nbytes=4)
    clipped = clips(("torch/nn/utils/clip_grad.py:9", "t.py:6"))
    assert len(not_updated(clipped, zeros(), first=number)) == 1


@pytest.mark.parametrize(
    "facts",
    {
        "written by plain ops": writes_parameter(),
        "the gradient is copied": op("clone", (60,), inputs=(GRADIENT,), at="t.py:6"),
        "the gradient is added to another": op(
            "add_", (60,), inputs=(60, GRADIENT), writes=(60,), at="t.py:6"
        ),
        "in an optimizer that stepped": stepped(1, gradients=1),
        "a part of a flat parameter": [
            tensor(61, (16,), storage=1),
            stepped(61, gradients=1),
        ],
        "an update in a hook": fact(
            e.HookRegistered, hook_id=1, hook_kind="post_accumulate_grad", tensor_id=1
        ),
        "a sharded model": fact(
            e.DistributedTensorSeen, tensor_id=2, local_tensor_id=60, placements=("Shard(dim=0)",)
        ),
        "a part of the recording": recorder_limited("within", ""),
    }.values(),
)
def test_gradients_that_are_used_give_no_finding(facts):
    assert not_updated(facts) == []


def test_parameter_in_an_optimizer_that_did_not_step_gives_no_finding():
    assert not_updated(in_no_optimizer=()) == []


def test_gradients_without_a_step_give_no_finding():
    found = run_rule(
        parameter_not_updated,
        parameter(1, "head.weight"),
        leaf(8, 1),
        gradient_of(8, 1, GRADIENT),
        fact(e.NoOptimizerFound, tensor_ids=(1,)),
    )
    assert found == []


# --- graph-kept ---------------------------------------------------------------------------------


def training(*, steps=4, linked=False, first_release=None, until=None, create_graph=False):
    """Return a training that computes ``total = total + loss`` or keeps its losses.

    Args:
        steps: their number.
        linked: each sum takes the previous one.
        first_release: the steps after which a saved tensor is released; None for never.
        until: the last step from whose sum the next one continues.
        create_graph: of each backward.
    """
    facts, count = [], 0

    def add(*more):
        nonlocal count
        facts.extend(more)
        count += len(more)

    for step in range(steps):
        loss, total, kept = 10 * step + 1, 10 * step + 2, 10 * step + 3
        mean_node, add_node = 100 + 2 * step, 101 + 2 * step
        earlier = linked and step > 0 and (until is None or step <= until)
        add(op("exp", (kept,), inputs=(7,), at="t.py:1"))
        add(op("mean", (loss,), inputs=(kept,), nr=2 * step, at="t.py:2"))
        add(node(mean_node, "MeanBackward0", nr=2 * step))
        if first_release is not None and step >= first_release:
            add(released(step - first_release))
        add(saved(step, kept, node=mean_node, nr=2 * step, slot="self"))
        add(backward(step, roots=(mean_node,), retain_graph=True, create_graph=create_graph,
                     at="t.py:3"))  # fmt: skip
        add(backward_ended(step), stepped(7, gradients=1))
        inputs = (loss, 10 * step - 8) if earlier else (loss,)
        add(op("add", (total,), inputs=inputs, nr=2 * step + 1, at="t.py:4"))
        to = (mean_node, add_node - 2) if earlier else (mean_node,)
        if linked:
            add(node(add_node, "AddBackward0", nr=2 * step + 1, to=to))
        add(step_ended(step, count + 2))
    return run_rule(graph_kept, facts)


def test_sum_that_continues_the_graphs_of_earlier_steps_is_reported():
    (finding,) = training(linked=True)
    assert finding.slug == "graph-kept"
    assert lines(finding) == ("t.py:4", "t.py:3")
    assert finding.title == "Each step leaves 32 B of saved tensors alive: their graph is kept"
    assert finding.confidence == "likely"


def test_sum_is_reported_if_backward_freed_the_saved_tensors():
    (finding,) = training(linked=True, first_release=1)
    assert lines(finding) == ("t.py:4", "None")
    assert finding.confidence == "hint"


def test_kept_loss_is_reported_at_the_line_that_computed_it():
    (finding,) = training()
    assert lines(finding) == ("t.py:2", "t.py:3")
    assert finding.confidence == "hint"


@pytest.mark.parametrize(
    "options",
    [
        {"first_release": 1},  # kept until the next step
        {"first_release": 2},  # the last two are kept: a pipeline
        {"steps": 2},  # too short to tell
        {"linked": True, "until": 1, "first_release": 1},  # the difference of two losses
        {"linked": True, "create_graph": True},  # meta learning
    ],
)
def test_graphs_that_are_freed_or_meant_give_no_finding(options):
    assert training(**options) == []


def test_steps_without_an_optimizer_give_no_finding():
    facts = [
        [
            op("exp", (10 * n + 1,), inputs=(7,), at="t.py:1"),
            saved(n, 10 * n + 1, node=100 + n, slot="result"),
            step_ended(n, 3 * n + 3),
        ]
        for n in range(5)
    ]
    assert run_rule(graph_kept, facts) == []
