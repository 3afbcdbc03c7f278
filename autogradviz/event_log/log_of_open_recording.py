"""The events of a trace whose recording may still be open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.errors import RecordingStateError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from autogradviz.event_log import Log


class LogSource:
    """Reads the events of a trace: from nowhere while it is recorded, then from memory or a file.

    Attributes:
        copy: returns a copy of the events recorded so far; None unless the recording is open.
        add_step_listener: has a function called after each step with the number of events so far;
            None unless the recording is open.
        path: the file to which all events of an open recording are written, if there is one.
        find_object: returns what identifies a live module or tensor in the recording; None for a
            trace from a file. See ``recorder/names_in_program.py``.
    """

    def __init__(self) -> None:
        self.copy: Callable[[], Log] | None = None
        self.add_step_listener: Callable[[Callable[[int], None]], None] | None = None
        self.path: Path | None = None
        self.find_object: Callable[[object], str | tuple[str, int] | None] | None = None
        self._read: Callable[[], Log] | None = None
        self._reason = "the trace is being recorded; leave the with block before reading it"

    @classmethod
    def of(cls, log: Log) -> LogSource:
        """Return the source of a complete log."""
        source = cls()
        source.finish(lambda: log)
        return source

    @property
    def is_ready(self) -> bool:
        """Whether the events can be read."""
        return self._read is not None

    def read(self) -> Log:
        """Return all events.

        Raises:
            RecordingStateError: if the recording is open, or belongs to a parent process.
        """
        if self._read is None:
            raise RecordingStateError(self._reason)
        return self._read()

    def finish(self, read: Callable[[], Log]) -> None:
        """Make the events of a finished recording readable."""
        self._read, self.copy, self.add_step_listener, self.path = read, None, None, None

    def detach_after_fork(self) -> None:
        """Refuse to be read in a forked child: the recording belongs to the parent."""
        self.copy = self.add_step_listener = self.path = None
        self._reason = "this process was forked while recording; only the parent has the trace"
