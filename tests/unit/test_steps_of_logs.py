"""Training steps, from hand-written recordings."""

from __future__ import annotations

from dataclasses import replace

import make_log as m
import pytest

from autogradviz.analysis import Analysis
from autogradviz.event_log.rank_summary import summarize, with_common_rounds
from autogradviz.event_log.training_steps import NO_END, TrainingSteps, common_steps
from autogradviz.events import LossRead, NormRead, OptimizerStepped, StepEnded
from autogradviz.scene.summary_and_steps import summarize as summarize_scene


def stepped(number, *updated, at=0):
    """Return an op, a backward and a step of an optimizer that ends a step of the recorder."""
    return [
        m.op("exp", (number,)),
        m.backward(at),
        m.fact(OptimizerStepped, optimizer_name="Adam", tensor_ids=updated, gradient_count=None),
        m.fact(StepEnded, step=number, end_seq=4 * (at + 1) + 1, step_ops=None, step_digest=None),
    ]


def steps_of(updates, *, first=0, after=()):
    """Return the steps whose optimizers updated these tensors."""
    facts = [stepped(first + at, *ids, at=at) for at, ids in enumerate(updates)]
    return TrainingSteps(m.make_log(*facts, *after))


def numbers(updates, **kwargs):
    return [step.number for step in steps_of(updates, **kwargs)]


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


def test_an_unfinished_round_did_not_end():
    ended = [step.ended for step in steps_of([CRITIC, GENERATOR, CRITIC])]
    assert ended == [True, False]


def test_an_optimizer_that_steps_after_another_one_ends_the_same_step():
    again = m.fact(OptimizerStepped, optimizer_name="B", tensor_ids=(7,), gradient_count=None)
    facts = [[*stepped(at, 1, at=at), again][: 5 - (at == 2)] for at in range(3)]
    for at, each in enumerate(facts):
        each[3].fields["end_seq"] = 5 * at + 5
    steps = TrainingSteps(m.make_log(*facts))
    assert [step.optimizers for step in steps] == [(3, 5), (8, 10), (13,)]
    assert steps.ends == [5, 10, 15]


def test_steps_of_a_round_end_with_its_last_optimizer():
    steps = steps_of([CRITIC, GENERATOR] * 2)
    assert [(step.start_seq, step.end_seq) for step in steps] == [(0, 9), (9, 17)]
    assert [(step.start_ns, step.end_ns) for step in steps] == [(0, 8_000), (8_000, 16_000)]
    assert [steps.at_ns(time_ns) for time_ns in (4_000, 8_000, 12_000, 16_000)] == [0, 0, 1, 1]
    assert [steps.at(seq) for seq in (8, 9, 16, 17)] == [0, 1, 1, 2]
    assert [step.backwards for step in steps] == [(0, 1), (2, 3)]


def summary_of(updates, *after):
    facts = [stepped(at, *ids, at=at) for at, ids in enumerate(updates)]
    return summarize(m.make_log(*facts, *after))


def test_rank_that_stopped_early_counts_rounds_as_the_others_do():
    complete, stopped, other = with_common_rounds([
        summary_of(([CRITIC] * 5 + [GENERATOR]) * 2), summary_of([CRITIC] * 3, m.backward(9)),
        summary_of([CRITIC] * 6),
    ])  # fmt: skip
    assert [(step.step, step.ended) for step in complete.steps] == [(0, True), (1, True)]
    assert [(step.step, step.ended) for step in stopped.steps] == [(0, False)]
    assert (stopped.events_of(0), stopped.step_at(3), stopped.step_of(2)) == ((0, NO_END), 0, 0)
    assert len(other.steps) == 6  # its optimizers step in another order


def test_rounds_of_a_rank_whose_first_parts_were_dropped_are_unknown():
    facts = [stepped(7 + at, *ids, at=at) for at, ids in enumerate([GENERATOR, CRITIC])]
    complete, dropped = with_common_rounds(
        [summary_of([CRITIC, GENERATOR] * 2), summarize(m.make_log(*facts))]
    )
    assert [step.step for step in complete.steps] == [0, 1]
    assert [step.step for step in dropped.steps] == [7, 8]


def test_recordings_that_are_compared_have_rounds_of_one_length():
    complete, stopped = steps_of([CRITIC, GENERATOR] * 2), steps_of([CRITIC], after=[m.backward(9)])
    assert len(stopped) == 2
    first, second = common_steps(complete, stopped)
    assert [step.ended for step in first] == [True, True]
    assert [step.ended for step in second] == [False]


def test_digests_of_a_step_of_a_rank_are_those_of_its_parts():
    first, second = (summary_of([CRITIC, GENERATOR] * 2) for _ in range(2))
    assert first == second
    assert first.steps == second.steps
    parts = [part._replace(digest=at, ops=2) for at, part in enumerate(first.parts)]
    changed = [*parts[:3], parts[3]._replace(digest=7)]
    steps = [replace(first, parts=tuple(each)).steps for each in (parts, changed)]
    assert [step.ops for step in steps[0]] == [4, 4]
    assert [a.digest == b.digest for a, b in zip(*steps, strict=True)] == [True, False]
    assert first.digested_events_of(1) == (8, 16)


def test_without_an_optimizer_a_step_ends_with_its_backward():
    facts = [
        m.op("exp", (1,), nr=1), m.backward(0), m.backward_ended(0), m.op("exp", (2,), nr=2),
        m.fact(StepEnded, step=0, end_seq=4, step_ops=None, step_digest=None),
        m.backward(1), m.backward_ended(1),
    ]  # fmt: skip
    steps = TrainingSteps(m.make_log(*facts))
    assert [(step.end_seq, step.end_ns, step.ended) for step in steps] == [
        (4, 3_000, True),
        (NO_END, 7_000, False),
    ]
    assert steps.ends == []


def test_loss_is_the_number_that_was_read_else_the_norm_of_the_root():
    facts = [
        m.backward(0), m.backward(1, parent=0), m.backward(2),
        m.fact(NormRead, backward_id=0, tensor_id=1, place="root", norm=2.0),
        m.fact(NormRead, backward_id=1, tensor_id=1, place="root", norm=5.0),
        m.fact(NormRead, backward_id=2, tensor_id=1, place="root", norm=3.0),
    ]  # fmt: skip
    read = m.fact(LossRead, backward_id=2, tensor_id=1, loss=-3.0)
    assert TrainingSteps(m.make_log(*facts))[0].losses == (2.0, 3.0)
    [step] = TrainingSteps(m.make_log(*facts, read))
    assert (step.losses, step.loss) == ((2.0, -3.0), -3.0)


def test_a_step_that_did_not_end_is_no_step_of_the_text():
    def text(*facts):
        return summarize_scene(Analysis(m.make_log(m.tensor(1), *facts)), None).steps_text

    three = [stepped(number, 1, at=number) for number in range(3)]
    more = [m.op("exp", (9,)), m.backward(9)]
    assert text(*three) == "3 steps"
    assert text(*three, *more) == "3 steps and one that did not end"
    assert text(*more) == "one step that did not end"
