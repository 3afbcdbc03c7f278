"""Ctrl-C, forks and threads: no patch stays installed, and the trace is readable."""

import functools
import os
import signal
import sys
import threading
import time
from contextlib import ExitStack

import pytest
import torch
from forked_child import run_in_child
from interpreters import run_forked
from interrupted_step import step
from patch_points import all_patch_points
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz.errors import AutogradvizWarning, RecordingStateError
from autogradviz.events import ErrorRaised, NodeStarted, OpCalled, RecorderFailed
from autogradviz.recorder.backward.backward_calls import BackwardTable
from autogradviz.recorder.module_names_and_calls import ModuleTable
from autogradviz.recorder.python_engine.dispatch_mode import OpMode
from autogradviz.recorder.python_engine.node_runs import NodeRuns
from autogradviz.recorder.python_engine.saved_tensors import SlotTable
from autogradviz.recorder.python_engine.stack_table import StackTable
from autogradviz.recorder.python_engine.tensor_ids import TensorTable
from autogradviz.recorder.retention.flight_recorder import FlightRecorder
from autogradviz.recorder.saved_tensors.registry_of_saves import SaveTable
from autogradviz.recorder.torch_internals.patches import patched, patched_for_compilers_too
from autogradviz.support import locks_gc_and_stderr as fork_safe_locks


@pytest.fixture(autouse=True)
def no_patch_stays_installed():
    before = all_patch_points()
    yield
    assert all_patch_points() == before


@pytest.mark.one_in(6, reason="interrupts each kind of recording", in_ci=2)
@pytest.mark.parametrize("where", ["forward", "backward", "hook", "pack"])
@pytest.mark.parametrize("options", [{}, {"keep_steps": 1}, {"path": "x.agv"}], ids=str)
def test_interrupt_removes_all_patches_and_keeps_a_readable_trace(
    where, options, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt), autogradviz.record(**options) as trace:
        step(where)
    assert trace.log.problem is None
    assert trace.log.of(ErrorRaised)[0].type_name == "KeyboardInterrupt"
    assert "aten.ones.default" in {op.op for op in trace.log.of(OpCalled)}
    assert trace.diagnose() is not None
    if "path" in options:
        assert autogradviz.load("x.agv") == trace


HAMMERED = """
import random, signal, sys, threading, time, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[1])
import torch
torch.set_num_threads(1)
import autogradviz
from interrupted_step import step
from patch_points import all_patch_points
step(None)
with autogradviz.record(): step(None)
before = all_patch_points()
signal.signal(signal.SIGINT, signal.default_int_handler)
rng = random.Random(int(sys.argv[2]))
interrupted = 0
for attempt in range(25):
    deadline = []
    def interrupt():
        signal.raise_signal(signal.SIGINT)
        deadline.append(time.monotonic() + 1)  # the recorder may defer it or send it again
    timer = threading.Timer(rng.random() * 0.03, interrupt)
    trace = None
    try:
        with autogradviz.record() as trace:
            timer.start()
            while not deadline or time.monotonic() < deadline[0]:
                step(None)
    except KeyboardInterrupt:
        interrupted += 1
    timer.join()
    after = all_patch_points()
    assert after == before, (attempt, [a for a, b in zip(after, before) if a is not b])
    assert trace.log.problem is None, trace.log.problem
    trace.analysis.graph
print(interrupted)
"""


@pytest.mark.one_in(4, reason="interrupts a program at many places", in_ci=2)
@pytest.mark.parametrize("seed", range(4))
def test_interrupts_at_any_time_remove_all_patches(seed):
    done = run_forked("-c", HAMMERED, os.path.dirname(__file__), seed, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) >= 20  # Python ignores an interrupt inside a __del__


def test_interrupted_installation_of_a_patch_is_undone():
    class InterruptingWrites(type):
        def __setattr__(cls, name, value):
            super().__setattr__(name, value)
            if value == "ours":
                raise KeyboardInterrupt

    class Owner(metaclass=InterruptingWrites):
        first, second = "original", "original"

    for patch in (patched, patched_for_compilers_too):
        with pytest.raises(KeyboardInterrupt), patch(Owner, first="ours", second="ours"):
            pytest.fail("the block runs")
        assert (Owner.first, Owner.second) == ("original", "original")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_child_is_not_recorded_and_raises(tmp_path):
    plain = all_patch_points()
    with autogradviz.record(path=tmp_path / "x.agv") as trace:
        torch.ones(2, requires_grad=True).exp().sum().backward()
        assert run_in_child(lambda: all_patch_points() == plain) == "True"
        assert "this process was forked while recording" in run_in_child(trace.snapshot)
        gradient = torch.ones(2, requires_grad=True)

        def train():
            gradient.exp().sum().backward()
            with autogradviz.record() as own:  # the child may start its own recording
                gradient.exp()
            return own.log.of(OpCalled)[0].op

        assert run_in_child(train) == "aten.exp.default"
    assert [op.op for op in trace.log.of(OpCalled)][-1].startswith("aten.")
    assert trace.log.problem is None
    assert autogradviz.load(tmp_path / "x.agv").log == trace.log


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_child_does_not_wait_for_locks_that_another_thread_held_at_the_fork(tmp_path):
    plain = all_patch_points()
    held, may_release = threading.Event(), threading.Event()

    def hold():
        with ExitStack() as all_held:
            for reference in list(fork_safe_locks._locks.values()):
                if (lock := reference()) is not None:
                    all_held.enter_context(lock)
            held.set()
            may_release.wait(60)

    def train():
        assert all_patch_points() == plain
        x = torch.ones(2, requires_grad=True)
        with autogradviz.record() as own:
            x.exp().sum().backward()
        return own.log.of(OpCalled)[0].op

    with autogradviz.record(path=tmp_path / "x.agv"):
        thread = threading.Thread(target=hold)
        thread.start()
        assert held.wait(60)
        result = run_in_child(train)
        may_release.set()
        thread.join()
    assert result == "aten.exp.default"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_child_leaves_the_block_without_an_error():
    read, write = os.pipe()
    with autogradviz.record() as trace:
        child = os.fork()
    if child == 0:
        try:
            trace.diagnose()
        except RecordingStateError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        assert pipe.read().startswith("this process was forked while recording")
    os.waitpid(child, 0)
    assert trace.log.problem is None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_child_that_is_forked_in_a_pack_hook_finishes_the_operator():
    read, write = os.pipe()
    children = []

    def pack(tensor):
        children.append(os.fork())
        return tensor

    x = torch.ones(2, requires_grad=True)
    with autogradviz.record() as trace:
        try:
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed):
                y = x.exp()
            y.sum().backward()
            result = str(x.grad.tolist())
        except BaseException as error:
            result = repr(error)
        if children == [0]:
            os.write(write, result.encode())
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        assert pipe.read() == result == str(torch.ones(2).exp().tolist())
    os.waitpid(children[0], 0)
    assert not trace.log.of(RecorderFailed)


@pytest.mark.parametrize("options", [{}, {"keep_steps": 2}, {"path": "x.agv"}], ids=str)
def test_many_threads_train_concurrently(options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("autogradviz.recorder.retention.flight_recorder.SMALL_BATCH", 1)
    monkeypatch.setattr("autogradviz.recorder.retention.flight_recorder.BATCH", 97)
    gradients = {}

    def train(number):
        weight = torch.nn.Parameter(torch.full((3,), 1.0 + number))
        optimizer = torch.optim.SGD([weight], lr=0.001)
        for _ in range(20):
            checkpoint(torch.sin, weight * weight, use_reentrant=False).sum().backward()
            optimizer.step()
            gradients.setdefault(number, []).append(weight.grad.tolist())
            optimizer.zero_grad()

    for number in range(4):
        train(number)
    plain, gradients = gradients, {}
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads change while a table is read
    try:
        with autogradviz.record(**options) as trace:
            threads = [threading.Thread(target=train, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert gradients == plain
    assert trace.log.problem is None
    seqs = [event.seq for event in trace.log]
    assert seqs == sorted(set(seqs))
    assert (
        len({event.thread for event in trace.log.of(NodeStarted)}) == 4 or "keep_steps" in options
    )
    assert trace.analysis.graph.nodes


def test_warning_about_a_failed_file_is_emitted_once(tmp_path):
    with pytest.warns(AutogradvizWarning) as warned:
        with autogradviz.record(path=tmp_path / "absent" / "x.agv"):
            pass
    assert len(warned) == 1


class TooLate(Exception):
    """Raised by a signal handler of the program, for example after a time limit."""


@pytest.fixture
def raise_signal():
    """A signal whose handler raises, once."""
    waiting = [True]

    def raise_it():
        if waiting and threading.current_thread() is threading.main_thread():
            waiting.pop()
            signal.raise_signal(signal.SIGUSR1)

    class Limit:
        def over(self, *_):
            raise TooLate

    before = signal.signal(signal.SIGUSR1, functools.partial(Limit().over))
    yield raise_it
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize(
    "part",
    [
        (TensorTable, "intern"),
        (StackTable, "capture"),
        (OpMode, "_emit_writes"),
        (BackwardTable, "begin"),
        (NodeRuns, "_finish"),
        (ModuleTable, "intern"),
        (SaveTable, "packing"),
        (SlotTable, "release"),  # mostly in destructors of nodes, where Python ignores exceptions
        (FlightRecorder, "write"),
    ],
    ids=lambda part: f"{part[0].__name__}.{part[1]}",
)
@pytest.mark.python_engine(reason="no Python code runs there")
def test_exception_of_a_signal_handler_is_not_a_recorder_failure(
    part, raise_signal, monkeypatch, tmp_path
):
    original = getattr(*part)

    def interrupted(*args, **kwargs):
        raise_signal()
        return original(*args, **kwargs)

    net = torch.nn.Linear(3, 3)
    with pytest.raises(TooLate), autogradviz.record(path=tmp_path / "x.agv") as trace:
        monkeypatch.setattr(*part, interrupted)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            step(None)
            net(torch.ones(1, 3)).sum()  # its graph is freed without a backward
            torch.ones(3).add_(1)
    assert trace.log.problem is None
    assert trace.log.of(RecorderFailed) == ()
