"""Totals of each step: the most saved bytes, and the norm of the gradients."""

from __future__ import annotations

from math import inf

import pytest
from event_strategies import events_of
from hypothesis import given, settings
from hypothesis import strategies as st
from step_peaks import peaks_of_steps

from autogradviz.analysis import Analysis
from autogradviz.event_log import Log, step_totals
from autogradviz.event_log.step_totals import TOTALED
from autogradviz.events import (
    GradAccumulated,
    LocalGradientNormRead,
    NormRead,
    StepEnded,
    StepNormRead,
    WholeParameterSeen,
)

COMMON = {"time_ns": 0, "thread": 0, "stack_id": None}


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(events_of(kind, st.integers(-1, 5)) for kind in TOTALED if kind is not StepEnded),
        max_size=40,
    ),
    st.lists(st.integers(0, 50), max_size=3).map(sorted),
)
def test_saved_bytes_of_random_logs_are_those_of_the_memory_curve(events, ends):
    ended = [
        StepEnded(seq=at, step=number, end_seq=at, step_ops=None, step_digest=None, **COMMON)
        for number, at in enumerate(ends)
    ]
    analysis = Analysis(Log.from_events([*events, *ended]))
    assert step_totals(analysis.log).saved_nbytes == peaks_of_steps(analysis)


def gradient(seq, leaf, backward):
    return GradAccumulated(seq=seq, backward_id=backward, node_id=leaf, tensor_id=leaf, **COMMON)


def read(seq, leaf, backward, norm):
    return StepNormRead(seq=seq, backward_id=backward, tensor_id=leaf, norm=norm, **COMMON)


def end(step, seq):
    return StepEnded(seq=seq, step=step, end_seq=seq + 1, step_ops=None, step_digest=None, **COMMON)


@pytest.mark.parametrize(
    ("norms", "expected"),
    [
        ([read(3, 1, 0, 3.0), read(4, 2, 0, 4.0)], 5.0),
        ([read(3, 1, 0, 3.0)], None),  # one of two leaves was read
        ([read(3, 1, 0, None), read(4, 2, 0, 4.0)], inf),
        ([read(3, 1, 0, 0.0), read(4, 2, 0, 0.0)], 0.0),
        ([], None),
    ],
)
def test_norm_of_gradients_is_known_if_those_of_all_leaves_were_read(norms, expected):
    events = [gradient(1, 1, 0), gradient(2, 2, 0), *norms, end(0, 9)]
    assert step_totals(Log.from_events(events)).gradient_norms == (expected,)


def test_norm_that_was_read_before_another_backward_does_not_count():
    first = [gradient(1, 1, 0), read(2, 1, 0, 3.0)]
    again = [gradient(3, 1, 1), end(0, 4)]
    assert step_totals(Log.from_events(first + again)).gradient_norms == (None,)
    final = NormRead(seq=9, backward_id=1, tensor_id=1, place="gradient", norm=6.0, **COMMON)
    assert step_totals(Log.from_events([*first, *again, final])).gradient_norms == (6.0,)


def test_norms_of_a_step_are_those_of_its_own_backwards():
    events = [
        gradient(1, 1, 0), gradient(2, 2, 0), read(3, 1, 0, 1.0), read(4, 2, 0, 1.0), end(0, 5),
        gradient(6, 1, 1), end(1, 7),
        gradient(8, 2, 2), read(9, 2, 2, 7.0), end(2, 10), end(3, 11),
    ]  # fmt: skip
    found = step_totals(Log.from_events(events))
    assert found.steps == (0, 1, 2, 3)
    assert found.gradient_norms == (pytest.approx(2**0.5), None, 7.0, None)


def part(seq, leaf, norm, *placements):
    return LocalGradientNormRead(
        seq=seq, backward_id=0, tensor_id=leaf, norm=norm, placements=placements, **COMMON
    )


@pytest.mark.parametrize(
    ("norms", "expected", "are_parts"),
    [
        ([part(3, 1, 3.0, "Shard(dim=0)"), part(4, 2, 4.0, "Replicate()")], 5.0, True),
        ([part(3, 1, 3.0, "Replicate()"), part(4, 2, 4.0, "Replicate()")], 5.0, False),
        ([part(3, 1, 3.0, "Shard(dim=0)", "Replicate()"), read(4, 2, 0, 4.0)], 5.0, True),
        ([part(3, 1, 3.0, "Partial(sum)"), part(4, 2, 4.0, "Replicate()")], None, True),
        ([part(3, 1, None, "Shard(dim=0)"), read(4, 2, 0, 4.0)], inf, True),
    ],
)
def test_norm_of_distributed_gradients_is_that_of_the_parts(norms, expected, are_parts):
    events = [gradient(1, 1, 0), gradient(2, 2, 0), *norms, end(0, 9)]
    found = step_totals(Log.from_events(events))
    assert (found.gradient_norms, found.are_parts) == ((expected,), are_parts)


def test_gradient_of_a_gathered_parameter_is_that_of_its_part():
    whole = WholeParameterSeen(seq=0, tensor_id=7, sharded_tensor_id=1, **COMMON)
    events = [whole, gradient(1, 7, 0), part(2, 1, 3.0, "Shard(dim=0)"), end(0, 9)]
    assert step_totals(Log.from_events(events)).gradient_norms == (3.0,)
    assert step_totals(Log.from_events([*events[:2], end(0, 9)])).gradient_norms == (None,)
