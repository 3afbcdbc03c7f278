"""A recording ends, and its trace can be read, wherever and however the block is left."""

import signal
import sys
import threading
import time
import warnings
from _thread import interrupt_main
from functools import partial

import pytest
import torch
from patch_points import all_patch_points
from torch.utils._python_dispatch import TorchDispatchMode, _len_torch_dispatch_stack

import autogradviz
from autogradviz.errors import AlreadyRecordingError
from autogradviz.events import OpCalled, RecorderFailed, TensorReleased, TensorSaved
from autogradviz.recorder.compile.leave_out_generated_code_ops import CompiledCode
from autogradviz.recorder.hook_points import HookPoints
from autogradviz.recorder.ops.op_arguments import OpArgumentTable
from autogradviz.recorder.recorder import Recorder
from autogradviz.recorder.recorder_failures import Failures
from autogradviz.recorder.retention.flight_recorder import BATCH, FlightRecorder


@pytest.fixture(params=["python", "native"])
def engine(request):
    if request.param == "native":
        request.getfixturevalue("native")
    return request.param


@pytest.fixture(autouse=True)
def nothing_stays():
    before = all_patch_points()
    yield
    torch.ones(1)
    assert all_patch_points() == before
    with autogradviz.record():  # no recording is open
        pass


class OtherMode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def step():
    w = torch.ones(3, requires_grad=True)
    (w * 2).exp().sum().backward()
    return w.grad


def on_another_thread(work):
    errors = []

    def run():
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert errors == []


def test_recording_may_be_left_on_another_thread(engine):
    recording = autogradviz.record(engine=engine)
    trace = recording.__enter__()
    plain = step()
    on_another_thread(lambda: recording.__exit__(None, None, None))
    count = len(trace.log.of(OpCalled))
    assert count > 3
    assert torch.equal(step(), plain)
    assert _len_torch_dispatch_stack() == 0
    assert len(trace.log.of(OpCalled)) == count
    assert trace.diagnose() == []


def test_recording_may_be_left_on_a_thread_that_has_modes(engine):
    recording = autogradviz.record(engine=engine)
    trace = recording.__enter__()

    def leave():
        with OtherMode():
            recording.__exit__(None, None, None)
            assert _len_torch_dispatch_stack() == 1
            step()

    on_another_thread(leave)
    step()
    assert _len_torch_dispatch_stack() == 0
    assert trace.log.problem is None


def test_recording_may_be_left_below_another_mode(engine):
    recording = autogradviz.record(engine=engine)
    trace = recording.__enter__()
    with OtherMode():
        recording.__exit__(None, None, None)
        step()
        assert _len_torch_dispatch_stack() == 1
    assert _len_torch_dispatch_stack() == 0
    assert trace.log.problem is None


class Timeout(Exception):
    pass


TIMER_IS_ON = threading.Event()


def ring(*_):
    # A signal that is sent to a thread of another library arrives when that thread runs, which may
    # be after the timer has stopped.
    if TIMER_IS_ON.is_set():
        raise Timeout


@pytest.fixture
def alarm():
    before = signal.signal(signal.SIGALRM, ring)
    TIMER_IS_ON.set()
    yield
    TIMER_IS_ON.clear()
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


PLACES = [
    (Recorder, "stop"), (Recorder, "_end"), (Recorder, "_close"), (HookPoints, "finish"),
    (Recorder, "start"), (HookPoints, "install"), (Recorder, "_begin"),
]  # fmt: skip


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[1])
def test_signal_waits_until_the_recording_has_begun_or_ended(
    place, after, engine, monkeypatch, alarm
):
    owner, name = place
    original, rang = getattr(owner, name), []

    def interrupted(self, *args):
        result = original(self, *args) if after else None
        if not rang:
            rang.append(True)
            signal.raise_signal(signal.SIGALRM)
        return result if after else original(self, *args)

    recording = autogradviz.record(engine=engine)
    monkeypatch.setattr(owner, name, interrupted)
    with pytest.raises(Timeout):
        with recording as trace:
            step()
    assert rang
    assert signal.getsignal(signal.SIGALRM) is ring
    if name not in {"start", "install", "_begin"}:
        assert len(trace.log.of(OpCalled)) > 3
        assert trace.diagnose() == []
    else:
        assert not recording._recording.is_open


def test_exception_of_the_user_stays_the_context_of_that_of_a_signal(engine, monkeypatch, alarm):
    original = Recorder._end

    def interrupted(self, *args):
        signal.raise_signal(signal.SIGALRM)
        return original(self, *args)

    monkeypatch.setattr(Recorder, "_end", interrupted)
    with pytest.raises(Timeout) as raised, autogradviz.record(engine=engine):
        raise KeyError("mine")
    assert isinstance(raised.value.__context__, KeyError)


def test_timer_that_rings_at_any_time_leaves_a_readable_trace(engine, alarm, monkeypatch):
    # It may also ring in an object's finalizer, and then in the function of pytest that reports it.
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    # A signal before the first instruction of __enter__ or __exit__ is one in the user's code.
    readable = 0
    for number in range(72):
        # The last ones are for a busy machine: later, until a recording begins in time.
        delay = 0.0001 * (number + 1) if number < 60 else 0.006 * 2 ** (number - 59)
        if number >= 60 and readable:
            break
        recording = autogradviz.record(engine=engine)
        trace = None
        TIMER_IS_ON.set()
        try:
            signal.setitimer(signal.ITIMER_REAL, delay, 0.0005)
            try:
                trace = recording.__enter__()
                step()
            finally:
                if recording._recording.is_open:
                    recording.__exit__(None, None, None)
        except Timeout:
            pass
        except AlreadyRecordingError:
            pytest.fail("the last recording stayed open")
        finally:
            while True:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    TIMER_IS_ON.clear()
                    break
                except Timeout:
                    continue
        if recording._recording.is_open:
            recording.__exit__(None, None, None)
        if trace is not None:
            assert trace.diagnose() == []
            readable += 1
    assert readable > 0


def test_second_signal_does_not_take_the_place_of_the_first(monkeypatch, alarm):
    original = signal.valid_signals
    rang = []

    def interrupted():
        if len(rang) < 3:
            rang.append(True)
            signal.raise_signal(signal.SIGALRM)
        return original()

    def interrupt(*_):
        signal.raise_signal(signal.SIGALRM)

    monkeypatch.setattr(signal, "valid_signals", interrupted)
    monkeypatch.setattr(OpArgumentTable, "intern", interrupt)
    with pytest.raises(Timeout), autogradviz.record(engine="python") as trace:
        step()
    assert len(rang) == 3
    assert not trace.log.of(RecorderFailed)


def test_signal_while_a_failure_is_recorded_reaches_the_user(monkeypatch, alarm):
    monkeypatch.setattr(OpArgumentTable, "intern", lambda *_: 1 / 0)
    rang = []

    def add(*_):
        if not rang:
            rang.append(True)
            signal.raise_signal(signal.SIGALRM)

    monkeypatch.setattr(Failures, "add", add)
    with pytest.raises(Timeout), autogradviz.record(engine="python"):
        step()


def test_failure_at_the_end_does_not_reach_the_user(engine, monkeypatch):
    monkeypatch.setattr(Recorder, "_end", lambda *_: 1 / 0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(KeyError, match="mine"), autogradviz.record(engine=engine) as trace:
            step()
            raise KeyError("mine")
    (warning,) = caught
    assert "file: ZeroDivisionError" in str(warning.message)
    assert len(trace.log.of(OpCalled)) > 3


def leave_mode_in_another_hook():
    """PyTorch restores the modes after each hook: there is nothing to leave in the second one."""
    found, mode = [], OtherMode()
    w = torch.ones(3, requires_grad=True)
    y = w * 2
    z = y.exp()
    z.register_hook(lambda g: found.append(mode.__enter__() is mode))
    y.register_hook(lambda g: found.append(mode.__exit__(None, None, None)))
    try:
        z.sum().backward()
    except RuntimeError as error:
        found.append(str(error))
    return [*found, w.grad]


def test_mode_left_in_another_hook_than_it_was_entered_in_raises_as_without_recording(engine):
    plain = leave_mode_in_another_hook()
    with autogradviz.record(engine=engine) as trace:
        recorded = leave_mode_in_another_hook()
        torch.ones(2).exp()
    assert recorded == plain == [True, "trying to pop from empty mode stack", None]
    assert trace.log.of(OpCalled)[-1].op == "aten.exp.default"  # the recorder's mode is still on


def test_mode_entered_before_the_recording_may_be_left_inside(engine):
    mode = OtherMode()
    mode.__enter__()
    with autogradviz.record(engine=engine) as trace:
        mode.__exit__(None, None, None)
        assert _len_torch_dispatch_stack() == (engine == "python")
        torch.ones(2).exp()
    assert _len_torch_dispatch_stack() == 0
    assert trace.log.of(OpCalled)[-1].op == "aten.exp.default"


class Rang(Exception):
    pass


@pytest.fixture
def interrupt():
    """A signal whose handler raises ``Rang``."""

    def handler(*_):
        raise Rang

    before = signal.signal(signal.SIGINT, handler)
    yield partial(signal.raise_signal, signal.SIGINT)
    signal.signal(signal.SIGINT, before)


def calling_first(work, method):
    """Return a method that calls a function when it is called for the first time."""
    called = []

    def call(*args):
        if not called:
            called.append(args)
            work()
        return method(*args)

    return call


def test_no_exception_of_a_handler_is_lost_while_a_flight_recorder_drops_steps(
    engine, interrupt, monkeypatch
):
    act = calling_first(interrupt, FlightRecorder._during_step)
    monkeypatch.setattr(FlightRecorder, "_during_step", act)
    with pytest.raises(Rang), autogradviz.record(engine=engine, keep_steps=1):
        x = torch.ones(1)
        for _ in range(3 * BATCH):
            x = x * 1


def test_no_exception_of_a_handler_is_lost_while_the_caller_of_an_operator_is_examined(
    engine, interrupt, monkeypatch
):
    find = calling_first(interrupt, CompiledCode._find)
    monkeypatch.setattr(CompiledCode, "_find", find)
    with pytest.raises(Rang), autogradviz.record(engine=engine):
        torch.compile(torch.exp, backend="eager")(torch.ones(1))
        x = torch.ones(1)
        for _ in range(1000):
            x = x * 1


def test_no_exception_of_a_handler_is_lost_when_a_graph_is_freed(engine, monkeypatch):
    def ring(*_):
        message = "rang"
        raise ValueError(message)

    def run_for_seconds(number):
        deadline = time.monotonic() + number
        while time.monotonic() < deadline:
            pass

    dropped = []
    monkeypatch.setattr(sys, "unraisablehook", dropped.append)
    before = signal.signal(signal.SIGINT, ring)
    try:
        with autogradviz.record(engine=engine) as trace:
            w = torch.ones(3, requires_grad=True)
            graph = [(w * 2).exp().sum()]
            graph[0].backward(retain_graph=True)
            with pytest.raises(ValueError, match="rang"):
                # Only C runs: the signal is pending when the nodes die.
                list(map(partial.__call__, [partial(interrupt_main), partial(graph.clear)]))
                run_for_seconds(10)
    finally:
        signal.signal(signal.SIGINT, before)
    assert dropped == []
    saved, released = (
        {event.saved_id for event in trace.log.of(kind)} for kind in (TensorSaved, TensorReleased)
    )
    assert saved
    assert released == saved
