"""Notices that the process is being ended, or hangs, and keeps the last steps."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading
import time
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final

from autogradviz import event_log
from autogradviz.errors import AutogradvizError
from autogradviz.support.defer_and_redeliver_signals import PASSING
from autogradviz.support.rank_and_trace_paths import last_steps_path

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

    from autogradviz.event_log import Log


# --- the file from which the last steps can be read if the process is killed or aborts ------------
#
# With ``keep_steps``, the last steps are in memory and written when something goes wrong. A process
# that aborts in C++, or is killed, writes nothing. So one of several ranks writes them from time to
# time, and deletes the file when the recording ends.


_SHARE: Final = 0.05
"""Largest share of the time that is spent on writing."""


class LastStepsFile:
    """Writes the events in memory after some of the steps."""

    def __init__(self, path: Path, snapshot_log: Callable[[], Log]) -> None:
        """Prepare.

        Args:
            path: of the trace; the file is beside it.
            snapshot_log: returns the events in memory.
        """
        self._path = last_steps_path(path)
        self._snapshot_log = snapshot_log
        self._next = 0.0  # when to write again, in seconds of ``monotonic``
        self._exists = False

    def step_ended(self, _end_seq: int) -> None:
        """Write the last steps if that takes a small share of the time."""
        began = monotonic()
        if began < self._next:
            return
        with suppress(OSError, AutogradvizError):
            event_log.save(self._snapshot_log(), self._path)
            self._exists = True
        ended = monotonic()
        self._next = ended + (ended - began) / _SHARE

    def delete(self) -> None:
        """Delete the file: the recording has ended."""
        if self._exists:
            self._path.unlink(missing_ok=True)


# --- notice that the process is being ended, or hangs, while the main thread waits in C++ ---------
#
# A handler of Python runs only when the main thread executes Python. One that waits in a collective
# does not, and then the launcher kills it. But the handler of C writes the number of the signal to
# a file descriptor at once, and a thread of this module reads it there.


_POLL_S: Final = 0.25
_GRACE_S: Final = 2.0
"""How long after Ctrl-C the main thread may take to raise ``KeyboardInterrupt``."""


class InterruptionWatch:
    """Calls a function when SIGTERM arrives, when Ctrl-C has no effect, and when nothing happens.

    SIGTERM ends the process afterwards, as it would have without the watch, unless the program has
    a handler of its own.
    """

    def __init__(
        self,
        on_interrupt: Callable[[str], None],
        event_count: Callable[[], int],
        hang_s: float | None = None,
    ) -> None:
        """Prepare.

        Args:
            on_interrupt: called from another thread with the reason: "SIGTERM", "SIGINT",
                "no event for 120 s".
            event_count: returns a number that changes while the program makes progress.
            hang_s: after how many seconds without progress it hangs; None for never.
        """
        self._on_interrupt = on_interrupt
        self._event_count = event_count
        self._hang_s = hang_s
        self._reader = self._writer = -1
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._handles_sigterm = False
        self._is_finishing = False
        self._is_due = False  # SIGTERM came, and has not ended the process yet

    def start(self) -> None:
        """Begin to watch; outside of the main thread, only for hangs."""
        self._watch_signals()
        if self._reader >= 0 or self._hang_s is not None:
            self._thread = threading.Thread(
                target=self._run, daemon=True, name="autogradviz-interruption-watch"
            )
            self._thread.start()

    def _watch_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        if before >= 0:  # the program's own, for example that of an event loop
            signal.set_wakeup_fd(before)
            os.close(reader)
            os.close(writer)
            return
        self._reader, self._writer = reader, writer
        _watched.add(self)
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _leave_to_thread)
            self._handles_sigterm = True

    def signal_arrived(self, number: int) -> None:
        """Let the thread act on a signal, or ``stop`` if that comes first."""
        self._is_due = True
        if self._writer >= 0:
            with suppress(OSError):
                os.write(self._writer, bytes([number]))

    def finishing(self) -> None:
        """Let SIGTERM wait for ``stop``: the main thread writes the trace."""
        self._is_finishing = True

    def stop(self) -> None:
        """Restore the handlers, stop watching, and let a SIGTERM that waited end the process."""
        self._stopped.set()
        self.detach()
        if self._writer >= 0:
            os.write(self._writer, b"\0")  # wake the thread
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=2 * _POLL_S)
        for descriptor in (self._reader, self._writer):
            if descriptor >= 0:
                os.close(descriptor)
        self._reader = self._writer = -1
        if self._is_due:
            os.kill(os.getpid(), signal.SIGTERM)

    def detach(self) -> None:
        """Restore what the process does at a signal."""
        _watched.discard(self)
        if self._writer < 0 or threading.current_thread() is not threading.main_thread():
            return
        with suppress(ValueError):
            left = signal.set_wakeup_fd(-1)
            if left not in {self._writer, -1}:  # the program has set its own meanwhile
                signal.set_wakeup_fd(left)
        if self._handles_sigterm and signal.getsignal(signal.SIGTERM) is _leave_to_thread:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._handles_sigterm = False

    def _run(self) -> None:
        newest, since, was_reported = -1, time.monotonic(), False
        while not self._stopped.is_set():
            numbers = self._signals()
            if self._stopped.is_set():
                return
            if signal.SIGTERM in numbers:
                self._terminate()
            elif signal.SIGINT in numbers:
                self._interrupt()
            count, now = self._event_count(), time.monotonic()
            if count != newest:
                newest, since, was_reported = count, now, False
            elif self._hang_s is not None and now - since > self._hang_s and not was_reported:
                was_reported = True
                self._on_interrupt(f"no event for {self._hang_s:g} s")
                newest = self._event_count()

    def _signals(self) -> bytes:
        if self._reader < 0:
            self._stopped.wait(_POLL_S)
            return b""
        ready, _, _ = select.select([self._reader], [], [], _POLL_S)
        return os.read(self._reader, 64) if ready else b""

    def _terminate(self) -> None:
        """Report SIGTERM, and let it end the process if the program does not handle it."""
        if self._is_finishing:
            self._is_due = signal.getsignal(signal.SIGTERM) is _leave_to_thread
            return
        self._on_interrupt("SIGTERM")
        if signal.getsignal(signal.SIGTERM) is _leave_to_thread:
            # Only the main thread may call signal.signal(), and it does not run.
            libc = ctypes.CDLL(None)
            libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
            libc.signal.restype = ctypes.c_void_p
            libc.signal(int(signal.SIGTERM), None)
            os.kill(os.getpid(), signal.SIGTERM)

    def _interrupt(self) -> None:
        """Report Ctrl-C if the main thread still stands where it stood."""
        before = _main_place()
        if not self._stopped.wait(_GRACE_S) and _main_place() == before:
            self._on_interrupt("SIGINT")


def _main_place() -> tuple[int, int] | None:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001
    return None if frame is None else (id(frame), frame.f_lasti)


def _leave_to_thread(number: int, _frame: FrameType | None) -> None:
    """Tell the thread, which the descriptor of the process did not if the program has set its own.

    An event loop does, and leaves none when it ends.
    """
    for watch in list(_watched):
        watch.signal_arrived(number)


PASSING.append(_leave_to_thread)

_watched: set[InterruptionWatch] = set()


def _detach_child() -> None:
    """Let signals to a forked child have their usual effect; the pipe is its parent's."""
    for watch in list(_watched):
        watch.detach()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_detach_child)
