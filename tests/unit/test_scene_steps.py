"""Steps as readers of the viewer count them."""

from __future__ import annotations

import make_log as m
import pytest

from autogradviz.analysis import Analysis
from autogradviz.events import OptimizerStepped, StepEnded
from autogradviz.scene.steps import Steps


def stepped(number, *updated):
    """Return an op, and a step of an optimizer that ends a step of the recorder."""
    return [
        m.op("exp", (number,)),
        m.fact(OptimizerStepped, optimizer_name="Adam", tensor_ids=updated, gradient_count=None),
        m.fact(StepEnded, step=number, end_seq=0, step_ops=None, step_digest=None),
    ]


def numbers(updates, *, first=0, after=()):
    """Return the numbers of the steps whose optimizers updated these tensors."""
    facts = [stepped(first + at, *ids) for at, ids in enumerate(updates)]
    return [row.number for row in Steps(Analysis(m.make_log(*facts, *after))).rows]


CRITIC, GENERATOR = (1, 2), (3,)


@pytest.mark.parametrize(
    ("updates", "steps"),
    [
        ([CRITIC], 1),
        ([CRITIC] * 3, 3),
        ([CRITIC, GENERATOR], 1),
        ([CRITIC, GENERATOR] * 3, 3),
        ([CRITIC, GENERATOR, CRITIC], 2),  # the last round is cut off
        ([CRITIC] * 5 + [GENERATOR], 6),  # nothing repeats
        (([CRITIC] * 5 + [GENERATOR]) * 2, 2),
        ([(1,), (1,), (1, 2), (1, 2)], 4),  # a group was added
        ([CRITIC, ()], 2),  # what the second updated is unknown
    ],
)
def test_a_round_of_several_optimizers_is_one_step(updates, steps):
    assert numbers(updates) == list(range(steps))


def test_steps_after_dropped_ones_are_those_of_the_recorder():
    assert numbers([GENERATOR, CRITIC, GENERATOR], first=7) == [7, 8, 9]


def test_what_ran_after_an_unfinished_round_belongs_to_it():
    assert numbers([CRITIC, GENERATOR, CRITIC], after=[m.op("sin", (9,), nr=1)]) == [0, 1]
    assert numbers([CRITIC, GENERATOR], after=[m.op("sin", (9,), nr=1)]) == [0, 1]
    assert numbers([CRITIC, CRITIC], after=[m.op("sin", (9,), nr=1)]) == [0, 1, 2]


def test_reading_the_loss_after_a_step_is_no_step():
    assert numbers([CRITIC], after=[m.op("detach", (9,))]) == [0]


def test_steps_of_a_round_end_with_its_last_optimizer():
    log = m.make_log(*[stepped(at, *ids) for at, ids in enumerate([CRITIC, GENERATOR] * 2)])
    steps = Steps(Analysis(log))
    ends = [event.time_ns for event in log.of(StepEnded)]
    assert [(row.start_ns, row.end_ns) for row in steps.rows] == [(0, ends[1]), (ends[1], ends[3])]
    assert [steps.at(time_ns) for time_ns in ends] == [0, 0, 1, 1]
