"""States in which an observer in C++ could break a program: each is entered, plain and recorded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest
import special_tensors
import torch
from forked_child import run_in_child
from test_native_engine import pytestmark  # noqa: F401 - applies here too

import autogradviz
from autogradviz.events import BackwardStarted, OpCalled, RecorderFailed

EXIT_WHILE_COMPUTING = """
import contextlib, os, sys, threading
import torch
import autogradviz

reached = threading.Event()
read, write = os.pipe()

def pack(tensor):
    reached.set()
    os.read(read, 1)  # nothing is written: the operator never ends
    return tensor

def work():
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        torch.ones(2, requires_grad=True).exp()

choices = {"none": None, "ops": {}, "steps": {"keep_steps": 2}, "memory": {"memory": True}}
options = choices[sys.argv[1]]
if options is not None:
    recording = autogradviz.record(engine="native", **options)
    recording.__enter__()
threading.Thread(target=work, daemon=True).start()
reached.wait()
x = torch.ones(2, requires_grad=True)
loss = (x * x).sum()
loss.backward()
print(x.grad.tolist())
sys.exit(3)
"""

EXIT_WITH_A_GRAPH = """
import sys
import torch
import autogradviz

kept = []
for options in ({}, {"keep_steps": 1}, {"memory": True}):
    x = torch.ones(2, requires_grad=True)
    with autogradviz.record(engine="native", **options):
        kept.append((x * x).exp().sum())
        kept[-1].backward(retain_graph=True)
recording = autogradviz.record(engine="native")
recording.__enter__()
x = torch.ones(2, requires_grad=True)
torch.kept = x.exp().sin()  # freed after the interpreter's own modules
print(x.grad, len(kept))
"""

FORK_WHILE_CALLBACKS_ARE_LOCKED = """
import ctypes, os, sys, threading, time, warnings
from pathlib import Path
import torch
import autogradviz
from autogradviz.events import BackwardStarted
warnings.simplefilter("ignore")  # nothing may be written to standard error
sys.path.insert(0, sys.argv[1])
from forked_child import run_in_child

UNKNOWN = 2**62
library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
remove_callback = library._ZN2at14removeCallbackEm  # at::removeCallback(CallbackHandle)
remove_callback.argtypes, remove_callback.restype = [ctypes.c_uint64], None

def fill(pipe):
    os.set_blocking(pipe, False)
    for size in (65536, 1):
        try:
            while True:
                os.write(pipe, bytes(size))
        except BlockingIOError:
            pass
    os.set_blocking(pipe, True)

def train():
    x = torch.ones(2, requires_grad=True)
    (x * x).sum().backward()
    with autogradviz.record(engine="native") as own:
        x.exp().sum().backward()
    return x.grad.tolist(), len(own.log.of(BackwardStarted))

recording = autogradviz.record(engine="native")
recording.__enter__()
reader, writer = os.pipe()
fill(writer)
os.dup2(writer, 2)
# PyTorch logs under its lock that it does not know the callback, and waits for the full pipe.
thread = threading.Thread(target=remove_callback, args=(UNKNOWN,))
thread.start()
system_call = Path(f"/proc/self/task/{thread.native_id}/syscall")
while not system_call.read_text().startswith("1 0x2 "):  # write to file descriptor 2
    time.sleep(0.001)
os.write(1, run_in_child(train).encode())
os._exit(0)
"""


@pytest.fixture
def in_process(native):
    """Run a program in another process; return its exit code, output and errors."""

    def run(program, *arguments):
        command = [sys.executable, "-c", program, *map(str, arguments)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        return ran.returncode, ran.stdout, ran.stderr

    return run


@pytest.mark.one_in(2, reason="starts several interpreters")
@pytest.mark.parametrize("options", ["ops", "steps", "memory"])
def test_interpreter_ends_while_a_daemon_thread_is_in_an_operator(in_process, options):
    plain = in_process(EXIT_WHILE_COMPUTING, "none")
    assert plain == (3, "[2.0, 2.0]\n", "")
    assert in_process(EXIT_WHILE_COMPUTING, options) == plain


@pytest.mark.slow(reason="starts several interpreters")
def test_interpreter_ends_with_an_open_recording_and_a_graph(in_process):
    assert in_process(EXIT_WITH_A_GRAPH) == (0, "None 3\n", "")


def test_child_runs_backward_although_a_thread_held_the_lock_of_callbacks(in_process):
    """Without a recording such a child hangs in its first backward."""
    x = torch.ones(2, requires_grad=True)
    (x * x).sum().backward()
    x.exp().sum().backward()
    expected = str((x.grad.tolist(), 1))
    tests = Path(__file__).parents[1]
    assert in_process(FORK_WHILE_CALLBACKS_ARE_LOCKED, tests) == (0, expected, "")


@pytest.mark.slow(reason="starts several interpreters")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_child_computes_and_records_although_threads_recorded_at_the_fork(native):
    ended, running = threading.Event(), threading.Barrier(3)

    def train():
        layer = torch.nn.Linear(3, 3)
        running.wait()
        while not ended.is_set():
            layer(torch.ones(1, 3)).sum().backward()

    def in_child():
        x = torch.ones(2, requires_grad=True)
        (x * x).sum().backward()
        with autogradviz.record(engine="native") as own:
            x.exp().sum().backward()
        return x.grad.tolist(), len(own.log.of(BackwardStarted))

    with autogradviz.record(engine="native", keep_steps=1) as trace:
        threads = [threading.Thread(target=train) for _ in range(2)]
        for thread in threads:
            thread.start()
        running.wait()
        try:
            results = {run_in_child(in_child) for _ in range(20)}
        finally:
            ended.set()
            for thread in threads:
                thread.join()
    x = torch.ones(2, requires_grad=True)
    (x * x).sum().backward()
    x.exp().sum().backward()
    assert results == {str((x.grad.tolist(), 1))}
    assert not trace.log.of(RecorderFailed)


def test_events_of_threads_that_have_ended_are_complete_and_in_order(native):
    def work(number):
        for _ in range(50):
            torch.full((2,), float(number)).exp()

    with autogradviz.record(engine="native") as trace:
        for first in (0, 4, 8):  # the next threads get the ids of those that have ended
            threads = [threading.Thread(target=work, args=(first + n,)) for n in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    calls = [op for op in trace.log.of(OpCalled) if op.op == "aten.exp.default"]
    by_thread = {}
    for op in calls:
        by_thread.setdefault(op.thread, []).append(op.time_ns)
    assert [len(times) for times in by_thread.values()] == [50] * 12
    assert all(times == sorted(times) for times in by_thread.values())
    seqs = [event.seq for event in trace.log]
    assert seqs == list(range(len(seqs)))


def test_exception_of_a_signal_inside_operators_leaves_the_recording_in_order(native):
    """The handler runs between operators, in a pack hook and in a backward."""
    raised = []

    def handler(*_):
        raised.append(1)
        raise ValueError("signal")

    def send(value):
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0)  # handlers run here at the latest
        return value

    class Sending(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return send(gradient)

    def work():
        with torch.autograd.graph.saved_tensors_hooks(send, lambda packed: packed):
            torch.ones(2, requires_grad=True).exp()

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with autogradviz.record(engine="native") as trace:
            with pytest.raises(ValueError, match="signal"):
                work()
            with pytest.raises(ValueError, match="signal"):
                Sending.apply(torch.ones(2, requires_grad=True)).sum().backward()
            x = torch.ones(2, requires_grad=True)
            x.exp().sum().backward()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(raised) == 2
    assert torch.equal(x.grad, torch.ones(2).exp())
    assert not trace.log.of(RecorderFailed)
    last = trace.log.of(OpCalled)[-1]
    assert (last.failed, last.phase) == (False, "backward")


def test_recording_that_begins_in_a_hook_has_no_events_of_the_operator_around_it(native):
    recordings = [autogradviz.record(engine="native") for _ in range(2)]

    def pack(tensor):
        recordings[0].__exit__(None, None, None)
        traces.append(recordings[1].__enter__())
        return tensor

    traces = [recordings[0].__enter__()]
    x = torch.ones(2, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed):
        x.exp()
    x.sin()
    recordings[1].__exit__(None, None, None)
    names = [[op.op for op in trace.log.of(OpCalled)] for trace in traces]
    assert names == [["aten.ones.default"], ["aten.sin.default"]]


@pytest.mark.parametrize("options", [{}, {"fingerprints": True, "norms": True}], ids=str)
@pytest.mark.parametrize("name", sorted(special_tensors.PROGRAMS))
def test_programs_with_special_tensors_have_the_same_results(native, name, options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        special_tensors.result_of(name)  # a first run may compile
        plain = special_tensors.result_of(name)
        with autogradviz.record(engine="native", **options) as trace:
            recorded = special_tensors.result_of(name)
    assert recorded == plain
    assert not trace.log.of(RecorderFailed)
