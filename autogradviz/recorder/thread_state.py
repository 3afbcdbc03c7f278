"""Per-thread state of a recording: open module calls, checkpoint regions and running nodes.

NOTE [ Threads ]
One recording can be open per process. Operators are recorded on the thread that opened it, because
a dispatch mode is thread-local. Backward is recorded on every thread.

PyTorch's engine runs the nodes of a device on a thread of that device, which it creates once and
never ends; the caller of ``backward()`` waits. The engine passes the thread-local state of the
caller on, dispatch modes too, but no Python frame stands below what is called there. So stacks
continue with those of the engine call that the thread works for: a line there has the same callers
as on the CPU. The nodes of a thread run one after the other: when one starts, all runs have ended
that are not below the innermost engine call on this thread.

Each thread has its own state
(``recorder/thread_state.py``), created on first access; event numbers are shared. A forked child
closes its copy of the file, removes the hook points and records nothing; locks that other threads
held at the fork are free there (``support/locks_gc_and_stderr.py``). Signals are deferred
while the recorder starts and stops (``support/defer_and_redeliver_signals.py``).
"""

from __future__ import annotations

import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import ref

from autogradviz.recorder.torch_internals.is_compiling import is_compiling
from autogradviz.recorder.torch_internals.private_api import current_graph_task_id, get_sequence_nr
from autogradviz.support.locks_gc_and_stderr import new_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


Running: TypeAlias = tuple[int, int, Any, bool, int]
"""A running node: backward id, node id, its ``NodeTag``, whether it got a gradient, first event."""


class ThreadState:
    """The module calls, regions, recomputations and nodes that are open on one thread."""

    __slots__ = (
        "__weakref__",
        "calls",
        "clock",
        "engine_calls",
        "marks",
        "modules",
        "name",
        "number",
        "reentrant_grad_enabled",
        "regions",
        "running",
        "sequence_nr",
        "step",
        "step_ops",
        "suspect",
        "suspended",
    )

    def __init__(self, number: int, sequence_nr: int) -> None:
        self.number = number
        self.name = thread_name()
        self.sequence_nr = sequence_nr  # autograd's counter when it was last read
        self.clock: Any = None  # a ``ThreadClock`` of the Python engine; workers have none
        self.calls: list[int] = []  # open module calls
        self.modules: list[int] = []  # their modules
        self.marks: list[tuple[FrameType, int]] = []  # marked frames, and the id of their callers
        self.regions: list[tuple[int | None, int | None]] = []  # (region, recomputation)
        self.engine_calls: list[Any] = []  # the open ``EngineCall``s of this thread
        self.running: list[Running] = []
        self.suspect = -1  # the node in which an op raised, or that unpacks a written tensor
        self.step = -1  # that the next member counts
        self.step_ops = 0
        self.reentrant_grad_enabled = False  # where the innermost reentrant region was called
        self.suspended = is_compiling()  # nothing of this thread is recorded

    @property
    def region(self) -> tuple[int | None, int | None]:
        """The innermost region and recomputation."""
        return self.regions[-1] if self.regions else (None, None)


def thread_name() -> str | None:
    """Return the name of this thread, None if Python did not start it.

    ``threading.current_thread`` would add such a thread to those that Python knows, and never
    remove it.
    """
    own = threading.get_ident()
    return next((each.name for each in threading.enumerate() if each.ident == own), None)


class _Local(threading.local):
    """The state of the current thread, created at its first use."""

    def __init__(self, table: ThreadTable) -> None:
        # Whatever fails here, the thread must go on; the session reports it.
        try:
            self.state = table.new()
        except Exception as error:  # noqa: BLE001
            table.failures.append(error)
            self.state = ThreadState(0, get_sequence_nr())
            self.state.suspended = True


class ThreadTable:
    """The states of all threads, numbered in order of appearance."""

    def __init__(self, attach: Callable[[ThreadState], int] | None = None) -> None:
        """Begin without threads.

        Args:
            attach: returns the number of the current thread, if C++ numbers threads.
        """
        self._lock = new_lock()
        self._attach = attach
        self.failures: list[Exception] = []
        """Failures at the first event of a thread, of which nothing is recorded then."""
        self._count = 0
        # A state dies with its thread. A WeakSet cannot be read while other threads add to it.
        self._states: dict[int, ref[ThreadState]] = {}
        self.local = _Local(self)
        """``local.state`` is the state of the current thread."""

    def new(self) -> ThreadState:
        """Return a state for a thread that has none."""
        if is_worker():
            state = ThreadState(0, get_sequence_nr())
            state.suspended = True
            return state
        with self._lock:
            number = self._count
            state = ThreadState(number, get_sequence_nr())
            self._count += 1
            states = self._states
            states[number] = ref(state, partial(states.pop, number))  # no Python function
        if self._attach is not None:
            state.number = self._attach(state)
        return state

    @property
    def count(self) -> int:
        """The number of threads of which something was recorded."""
        return self._count

    def __iter__(self) -> Iterator[ThreadState]:
        references = list(self._states.values())
        return (state for each in references if (state := each()) is not None)


def is_worker() -> bool:
    """Return whether this thread of C++ works for a kernel that another thread has called.

    Dispatch modes are active on such a thread too, and their handlers are all of Python that runs
    on it. Its calls are an implementation detail of the kernel, such as a collective. Which of
    several workers gets a call differs from run to run, and each call has thread-local state of its
    own.
    """
    frame = sys._getframe(1)  # noqa: SLF001 - the documented way
    while frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_name == "__torch_dispatch__" and current_graph_task_id() == -1
