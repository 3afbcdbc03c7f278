"""The clock of events stands still while the recorder works."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from autogradviz.recorder.python_engine import program_clock


@pytest.fixture
def now(monkeypatch):
    """The time that the clock reads, in a dict."""
    time = {"ns": 1_000}
    monkeypatch.setattr(program_clock, "perf_counter_ns", lambda: time["ns"])
    return time


@pytest.fixture
def clock(now):
    """A clock of two threads; ``clock.thread`` is the current one."""
    clock = program_clock.ProgramClock()
    states = [SimpleNamespace(number=number, clock=None) for number in range(2)]
    local = SimpleNamespace(state=states[0])
    clock.set_threads(SimpleNamespace(local=local))
    clock.add(states[0])
    return SimpleNamespace(clock=clock, states=states, local=local)


def test_time_of_the_recorder_is_left_out(now, clock):
    clock = clock.clock
    now["ns"] += 100
    clock.begin_recorder_time()
    now["ns"] += 50
    clock.begin_recorder_time()
    now["ns"] += 7
    assert [clock.time_ns(0), clock.time_ns(0)] == [101, 102]
    clock.end_recorder_time()
    now["ns"] += 3
    clock.end_recorder_time()
    assert (clock.time_ns(0), clock.recorder_ns) == (102, 58)


def test_the_same_time_is_left_out_again_but_not_more_than_three_quarters_of_what_follows(
    now, clock
):
    clock = clock.clock
    work(now, clock, 60)
    assert (clock.time_ns(0), clock.recorder_ns) == (0, 60)
    now["ns"] += 40
    assert clock.time_ns(0) == 10
    work(now, clock, 0)
    now["ns"] += 100
    work(now, clock, 1_000_000_000)
    assert (clock.time_ns(0), clock.recorder_ns) == (80, 1_000_000_120)
    now["ns"] += 1_000_000
    assert clock.time_ns(0) == 1_000_080 - program_clock.MOST_OWED_NS


def test_worker_of_a_kernel_does_not_stop_the_clock_of_the_thread_whose_number_it_has(now, clock):
    clock.local.state = SimpleNamespace(number=0, clock=None)
    work(now, clock.clock, 50)
    assert (clock.clock.time_ns(0), clock.clock.recorder_ns) == (50, 0)


def work(now, clock, nanoseconds):
    clock.begin_recorder_time()
    now["ns"] += nanoseconds
    clock.end_recorder_time()


def test_new_thread_begins_at_the_time_of_the_others(now, clock):
    work(now, clock.clock, 60)
    now["ns"] += 80
    assert clock.clock.time_ns(0) == 20
    clock.clock.add(clock.states[1])
    assert clock.clock.time_ns(0) == clock.clock.time_ns(1) == 20


def test_thread_that_waited_agrees_with_the_others_but_not_before_its_last_event(now, clock):
    program = clock.clock
    program.add(clock.states[1])
    clock.local.state = clock.states[1]
    work(now, program, 0)
    clock.local.state = clock.states[0]
    work(now, program, 60)
    now["ns"] += 80
    assert (program.time_ns(0), program.time_ns(1)) == (20, 140)
    program.agree_with_other_threads(1)
    assert program.time_ns(0) == program.time_ns(1) == 20
    clock.local.state = clock.states[1]
    work(now, program, 500)
    clock.local.state = clock.states[0]
    work(now, program, 0)
    now["ns"] += 20
    time = program.time_ns(0) - 20
    program.agree_with_other_threads(0)
    assert program.time_ns(0) == time


def test_threads_that_begin_in_another_order_than_they_are_numbered_have_their_own_clocks(
    now, clock
):
    late = SimpleNamespace(number=2, clock=None)
    clock.clock.add(late)
    clock.clock.add(clock.states[1])
    clock.local.state = clock.states[1]
    work(now, clock.clock, 50)
    assert (clock.clock.time_ns(1), clock.clock.time_ns(2)) == (0, 50)
