"""Appending events and reading them back."""

from __future__ import annotations

from make_log import backward, backward_ended, make_log, saved, unpacked

from autogradviz.events import (
    BackwardEnded,
    BackwardStarted,
    RecordingEnded,
    TensorReleased,
    TensorSaved,
    TensorUnpacked,
)
from autogradviz.log import Log


def test_rows_read_back_as_events():
    log = Log()
    append = log.appender(TensorReleased)
    append((3, 30, 0, None, 7))
    assert log.of(TensorReleased) == (
        TensorReleased(seq=3, time_ns=30, thread=0, stack_id=None, saved_id=7),
    )


def test_events_that_are_appended_after_a_reading_are_read_too():
    log = Log()
    append = log.appender(TensorReleased)
    append((0, 0, 0, None, 1))
    assert [event.saved_id for event in log.of(TensorReleased)] == [1]
    append((1, 0, 0, None, 2))
    assert [event.saved_id for event in log.of(TensorReleased)] == [1, 2]


def test_kinds_are_merged_in_the_order_of_their_numbers():
    log = make_log(backward(), saved(1), unpacked(1), backward_ended())
    kinds = [type(event) for event in log if event.seq > 0]
    assert kinds == [BackwardStarted, TensorSaved, TensorUnpacked, BackwardEnded]
    merged = log.merged(TensorUnpacked, BackwardStarted)
    assert [type(event) for event in merged] == [BackwardStarted, TensorUnpacked]


def test_a_log_of_events_in_any_order_is_the_same_log():
    log = make_log(backward(), saved(1), saved(2), unpacked(1), backward_ended())
    assert Log.from_events(reversed(list(log))) == log


def test_logs_that_differ_in_a_row_or_a_problem_are_not_equal():
    log, other = make_log(saved(1)), make_log(saved(2))
    assert log != other
    torn = make_log(saved(1))
    torn.problem = "torn"
    assert log != torn
    assert log != "log"


def test_a_log_knows_how_many_events_it_holds():
    log = Log()
    log.extend_rows(RecordingEnded, [(0, 0, 0, None, 0)])
    assert (len(log), repr(log)) == (1, "<Log of 1 events>")
