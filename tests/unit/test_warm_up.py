"""A first step is cold: no time is compared with it, and it is marked if it takes far longer."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from autogradviz.analysis.phase_times import (
    compared_steps,
    ranges_over_steps,
    times_of_steps,
    warm_up,
)

MS = 1_000_000


def recording(*lengths, first=0, waits=0, compiles=0):
    """Return a recording of steps of milliseconds; the first one waits or compiles before it runs.

    All ops of a step run in a forward.
    """
    steps, spans, ops, now = [], [], [], 0
    for at, length in enumerate(lengths):
        start, ran = now, now + (0 if at else waits + compiles)
        now = ran + length
        spans.append(SimpleNamespace(kind="forward", depth=0, start_ns=ran * MS, end_ns=now * MS))
        ops.append(SimpleNamespace(time_ns=ran * MS, duration_ns=length * MS))
        steps.append(
            SimpleNamespace(number=first + at, start_ns=start * MS, end_ns=now * MS, ended=True)
        )
    if compiles:
        times = {"start_ns": waits * MS, "end_ns": (waits + compiles) * MS}
        spans.append(SimpleNamespace(kind="compile", depth=0, **times))
    ends = [step.end_ns for step in steps]

    class Steps(list):
        ended = property(list)

        def at_ns(self, time_ns):
            return next(at for at, end in enumerate(ends) if time_ns < end)

    return SimpleNamespace(
        steps=Steps(steps),
        timeline=SimpleNamespace(spans=spans),
        ops=ops,
        modules={},
        graph=SimpleNamespace(nodes={}),
        log=SimpleNamespace(of=lambda kind: ()),
        end_ns=ends[-1],
    )


def test_a_first_step_eight_times_as_long_is_warm_up_and_no_time_of_a_step():
    analysis = recording(80, 9, 10)
    assert warm_up(analysis) == pytest.approx(8)
    assert [step["forward"] for step in times_of_steps(analysis)] == [9 * MS, 10 * MS]
    assert ranges_over_steps(analysis)["forward"] == (9 * MS, 10 * MS)


def test_a_first_step_that_is_a_little_longer_is_no_warm_up_but_cold():
    analysis = recording(15, 9, 10)
    assert warm_up(analysis) == 0
    assert ranges_over_steps(analysis)["forward"] == (9 * MS, 10 * MS)
    assert compared_steps(analysis) == [1, 2]
    assert compared_steps(recording(15, 9)) == [1]


def test_the_only_step_counts_and_so_does_the_first_kept_one_of_a_longer_program():
    assert compared_steps(recording(15)) == [0]
    assert compared_steps(recording(15, 9, first=7)) == [0, 1]


def test_with_one_other_step_either_may_be_unusual():
    assert warm_up(recording(80, 10)) == 0


def test_the_first_step_that_was_kept_of_a_longer_program_is_none():
    assert warm_up(recording(80, 10, 10, first=7)) == 0


def test_waiting_is_no_warm_up_and_compiling_is():
    assert warm_up(recording(10, 10, 10, waits=500)) == 0
    assert warm_up(recording(10, 10, 10, compiles=490)) == pytest.approx(50)
