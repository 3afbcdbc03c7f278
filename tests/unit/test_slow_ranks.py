"""Ranks that are slow, in summaries written by hand."""

import pytest

from autogradviz.distributed_runs.ranks_unlike_others import find_odd_ranks
from autogradviz.event_log.rank_summary import Collectives, RankSummary, Step

MS = 1_000_000


def summary(rank, times_ms):
    """Return the summary of a rank whose steps take so long until their first collective."""
    steps, now = [], 0
    for number, time_ms in enumerate(times_ms):
        called = now + time_ms * MS
        now = called + 5 * MS
        collectives = (Collectives("0", number, 1, 7, called),)
        numbers = number + 1, number, 0  # end, end of the digest, optimizers
        steps.append(Step(number, True, 3, 11, now, 0.5, False, *numbers, collectives))
    return RankSummary(
        rank=rank, world_size=4, host="", run_name="", restart_count=0, started_at_ns=0, groups=(),
        meshes=(), model=1, parts=tuple(steps), round_length=1, newest=(), gradients=None,
        parameters=None, error=None, interrupted=None, is_complete=True, event_count=9,
        duration_ns=0,
    )  # fmt: skip


def slow(*times_ms):
    """Return rank and detail of each slow rank."""
    summaries = {rank: summary(rank, times) for rank, times in enumerate(times_ms)}
    found = find_odd_ranks(summaries, [tuple(summaries)])
    assert {odd.aspect for odd in found} <= {"time"}
    return [(odd.rank, odd.detail.split(" until")[0]) for odd in found]


USUAL = [10, 900, 20, 21, 20, 19]
LATE = [10, 900, 60, 61, 60, 59]


def test_rank_that_is_late_in_every_step_is_slow():
    assert slow(USUAL, LATE, USUAL) == [(1, "60.0 ms instead of 20.0 ms")]
    assert slow(LATE, USUAL) == [(0, "60.0 ms instead of 20.0 ms")]


@pytest.mark.parametrize(
    "times",
    [
        [10, 900, 20, 21, 20, 500],  # one slow step
        [10, 9000, 20, 21, 20, 19],  # the second step, in which libraries are imported
        [10, 900, 60, 20, 20, 59],  # two of four steps are as fast
        [10, 900, 27, 28, 27, 26],  # less than 1.5 times
        LATE[:4],  # two steps are too few
    ],
)
def test_rank_that_is_late_in_some_steps_only_is_not(times):
    assert slow(USUAL, times, USUAL) == []


def test_one_slow_step_of_the_others_does_not_hide_a_slow_rank():
    assert slow([10, 20, 20, 800, 20, 20], LATE) == [(1, "60.0 ms instead of 20.0 ms")]


def test_small_differences_in_milliseconds_do_not_count():
    assert slow([1] * 6, [5] * 6) == []
