"""The time of events: that of the program alone, without the work of the recorder.

The native engine does the same; see NOTE [ Time of the program ] in ``native/program_time.h``.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autogradviz.recorder.thread_state import ThreadState, ThreadTable


class ProgramClock:
    """A clock of each thread that stands still while the recorder works on the thread.

    Then it advances by a nanosecond each time that it is read, so that events have different times.

    Times are in nanoseconds. A time of ``perf_counter_ns`` minus the origin of the thread is a time
    of the program.
    """

    def __init__(self) -> None:
        """Begin at 0, without threads."""
        self.origins: list[int] = []
        """Start of the recording plus what the recorder has taken, by the number of the thread."""
        self._began_ns = perf_counter_ns()
        self._stopped_ns: list[int] = []  # when the recorder began to work, 0 if it does not
        self._read: list[int] = []  # how often the clock was read since then
        self._left_ns: list[int] = []  # when it last finished
        self._depths: list[int] = []
        self._states: list[int] = []  # id of the thread's state; workers have its number only
        self._threads: ThreadTable
        self.recorder_ns = 0
        """The work of the recorder on all threads."""

    def set_threads(self, threads: ThreadTable) -> None:
        """Set the table that knows the number of the current thread."""
        self._threads = threads

    def add(self, state: ThreadState) -> int:
        """Add a thread, which begins at the time of the others; return its number."""
        while len(self.origins) <= state.number:
            self._stopped_ns.append(0)
            self._read.append(0)
            self._left_ns.append(perf_counter_ns())
            self._depths.append(0)
            self._states.append(id(state))
            self.origins.append(max(self.origins, default=self._began_ns))
        return state.number

    def time_ns(self, thread: int) -> int:
        """Return the time of an event of a thread."""
        if not self._stopped_ns[thread]:
            return perf_counter_ns() - self.origins[thread]
        self._read[thread] += 1
        return self._stopped_ns[thread] + self._read[thread] - self.origins[thread]

    def begin_recorder_time(self) -> None:
        """Stop the clock of this thread."""
        state = self._threads.local.state
        thread = state.number
        if self._states[thread] != id(state):
            return
        self._depths[thread] += 1
        if self._depths[thread] == 1:
            self._stopped_ns[thread] = perf_counter_ns()
            self._read[thread] = 0

    def end_recorder_time(self) -> None:
        """Let the clock of this thread run again, once for each time that it was stopped."""
        state = self._threads.local.state
        thread = state.number
        if self._states[thread] != id(state):
            return
        self._depths[thread] -= 1
        if self._depths[thread] == 0:
            now = self._left_ns[thread] = perf_counter_ns()
            taken = max(0, now - self._stopped_ns[thread] - self._read[thread])
            self.origins[thread] += taken
            self.recorder_ns += taken
            self._stopped_ns[thread] = 0

    def agree_with_other_threads(self, thread: int) -> None:
        """Leave out what was taken from other threads, for which this one has waited."""
        now = self._stopped_ns[thread] or perf_counter_ns()
        own = self.origins[thread]
        self.origins[thread] = max(own, min(max(self.origins), own + now - self._left_ns[thread]))
