"""The time of events: that of the program alone, without the work of the recorder.

The native engine does the same; see NOTE [ Time of the program ] in ``native/program_time.h``, also
for what calls of the recorder cost the program.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from autogradviz.recorder.thread_state import ThreadState, ThreadTable

MOST_OWED_NS: Final = 50_000
"""The longest time that is left out after a call of the recorder, for its effect on the program."""


class ThreadClock:
    """A clock of one thread that stands still while the recorder works on the thread.

    Then it advances by a nanosecond each time that it is read, so that events have different times.
    Times are in nanoseconds. A time of ``perf_counter_ns`` minus the origin is one of the program.
    """

    __slots__ = ("depth", "left_ns", "origin_ns", "owed_ns", "read", "stopped_ns", "taken_ns")

    def __init__(self, origin_ns: int) -> None:
        self.origin_ns = origin_ns  # start of the recording plus what the recorder has taken
        self.stopped_ns = 0  # when the recorder began to work, 0 if it does not
        self.read = 0  # how often the clock was read since then
        self.left_ns = perf_counter_ns()  # when it last finished, or the clock was read since then
        self.owed_ns = 0  # what its calls have cost the program, as far as it is not left out yet
        self.taken_ns = 0  # all that is left out of the times of this thread
        self.depth = 0

    def time_ns(self) -> int:
        """Return the time of an event."""
        if not self.stopped_ns:
            now = perf_counter_ns()
            self.settle(now)
            return now - self.origin_ns
        self.read += 1
        return self.stopped_ns + self.read - self.origin_ns

    def settle(self, now: int) -> None:
        """Leave out what calls of the recorder have cost the program since they finished."""
        if self.owed_ns:
            self._take(taken := min(self.owed_ns, (now - self.left_ns) * 3 // 4))
            self.owed_ns -= taken
            self.left_ns = now

    def finish(self, now: int) -> None:
        """Leave out the work of the recorder that ends now."""
        self._take(taken := max(0, now - self.stopped_ns - self.read))
        self.owed_ns = min(self.owed_ns + taken, MOST_OWED_NS)
        self.left_ns = now
        self.stopped_ns = 0

    def _take(self, taken_ns: int) -> None:
        self.origin_ns += taken_ns
        self.taken_ns += taken_ns


class ProgramClock:
    """The clocks of all threads of a recording."""

    def __init__(self) -> None:
        """Begin at 0, without threads."""
        self._began_ns = perf_counter_ns()
        self._clocks: dict[int, ThreadClock] = {}  # by the number of the thread
        self._threads: ThreadTable

    @property
    def recorder_ns(self) -> int:
        """The work of the recorder on all threads, and its effect on the program."""
        return sum(clock.taken_ns for clock in self._clocks.copy().values())

    def set_threads(self, threads: ThreadTable) -> None:
        """Set the table that knows the state of the current thread."""
        self._threads = threads

    def add(self, state: ThreadState) -> int:
        """Add a thread, which begins at the time of the others; return its number."""
        state.clock = self._clocks[state.number] = ThreadClock(self._latest_origin())
        return state.number

    def _latest_origin(self) -> int:
        clocks = self._clocks.copy().values()  # other threads may begin meanwhile
        return max((clock.origin_ns for clock in clocks), default=self._began_ns)

    def time_ns(self, thread: int) -> int:
        """Return the time of an event of a thread."""
        return self._clocks[thread].time_ns()

    def begin_recorder_time(self) -> None:
        """Stop the clock of this thread."""
        clock: ThreadClock | None = self._threads.local.state.clock
        if clock is None:
            return
        clock.depth += 1
        if clock.depth == 1:
            clock.stopped_ns = perf_counter_ns()
            clock.read = 0
            clock.settle(clock.stopped_ns)

    def end_recorder_time(self) -> None:
        """Let the clock of this thread run again, once for each time that it was stopped."""
        clock: ThreadClock | None = self._threads.local.state.clock
        if clock is None:
            return
        clock.depth -= 1
        if clock.depth == 0:
            clock.finish(perf_counter_ns())

    def agree_with_other_threads(self, thread: int) -> None:
        """Leave out what was taken from other threads, for which this one has waited."""
        clock = self._clocks[thread]
        now = clock.stopped_ns or perf_counter_ns()
        own = clock.origin_ns
        clock.origin_ns = max(own, min(self._latest_origin(), own + now - clock.left_ns))
