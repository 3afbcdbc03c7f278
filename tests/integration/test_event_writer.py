"""Telling an event: its number, its time, and the row that it becomes."""

import pytest

from autogradviz.event_log import Log
from autogradviz.events import NodeFinished, NodeStarted
from autogradviz.recorder.event_writer import EventSequence


def test_events_of_all_kinds_share_one_numbering_and_take_values_in_field_order():
    tally, log = EventSequence(), Log()
    started, finished = tally.emitter(log, NodeStarted), tally.emitter(log, NodeFinished)
    assert [started(1, None, 2, 3, (4,)), finished(1, 9, 2, 3), started(1, None, 2, 5, ())] == [
        0,
        1,
        2,
    ]
    assert tally.newest == 2
    assert [(e.seq, e.thread, e.node_id, e.inputs) for e in log.of(NodeStarted)] == [
        (0, 1, 3, (4,)),
        (2, 1, 5, ()),
    ]
    (event,) = log.of(NodeFinished)
    assert (event.stack_id, event.backward_id, event.node_id) == (9, 2, 3)
    assert [event.time_ns for event in log] == sorted(event.time_ns for event in log)


def test_the_keeper_is_called_before_the_the_event_that_is_due_and_each_after_it():
    called = []
    tally, log = EventSequence(called.append), Log()
    finished = tally.emitter(log, NodeFinished)
    tally.due = 2
    for _ in range(4):
        finished(0, None, 0, 0)
    assert called == [2, 3]
    assert tally.next() == 4
    assert called == [2, 3, 4]


def test_an_event_with_a_field_too_few_is_refused_and_takes_no_number():
    tally, log = EventSequence(), Log()
    with pytest.raises(TypeError):
        tally.emitter(log, NodeFinished)(0, None, 0)
    assert (len(log), tally.newest) == (0, -1)
