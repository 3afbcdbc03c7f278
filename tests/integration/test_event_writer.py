"""Writing an event: its number, its time and its row."""

from time import perf_counter_ns

import pytest

from autogradviz.event_log import Log
from autogradviz.events import NodeFinished, NodeStarted
from autogradviz.recorder.event_writer import EventSequence


def read_clock(thread):
    return perf_counter_ns()


def test_events_of_all_kinds_share_one_numbering_and_take_values_in_field_order():
    sequence, log = EventSequence(read_clock), Log()
    started, finished = sequence.emitter(log, NodeStarted), sequence.emitter(log, NodeFinished)
    assert [started(1, None, 2, 3, (4,)), finished(1, 9, 2, 3), started(1, None, 2, 5, ())] == [
        0,
        1,
        2,
    ]
    assert sequence.newest == 2
    assert [(e.seq, e.thread, e.node_id, e.inputs) for e in log.of(NodeStarted)] == [
        (0, 1, 3, (4,)),
        (2, 1, 5, ()),
    ]
    (event,) = log.of(NodeFinished)
    assert (event.stack_id, event.backward_id, event.node_id) == (9, 2, 3)
    assert [event.time_ns for event in log] == sorted(event.time_ns for event in log)


def test_callback_runs_before_the_due_event_and_every_later_event():
    called = []
    sequence, log = EventSequence(read_clock, on_due=called.append), Log()
    finished = sequence.emitter(log, NodeFinished)
    sequence.set_due(2)
    for _ in range(4):
        finished(0, None, 0, 0)
    assert called == [2, 3]
    assert sequence.next() == 4
    assert called == [2, 3, 4]


def test_event_with_a_missing_field_is_refused_and_has_no_number():
    sequence, log = EventSequence(read_clock), Log()
    with pytest.raises(TypeError):
        sequence.emitter(log, NodeFinished)(0, None, 0)
    assert (len(log), sequence.newest) == (0, -1)
