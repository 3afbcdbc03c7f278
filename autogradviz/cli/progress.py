"""Messages and the progress line of a recording, on standard error."""

from __future__ import annotations

import sys
from time import monotonic
from typing import Final

from autogradviz.analysis.formatting import plural
from autogradviz.support.locks_gc_and_stderr import is_open, write_stderr

REFRESH_S: Final = 0.25
"""Shortest time between two updates of the line on a terminal, in seconds."""

_ERASE: Final = "\r\x1b[K"


def count_calls(count: int) -> str:
    """Return "1 call of optimizer.step()"; a step of a training may have several."""
    return f"{plural(count, 'call')} of optimizer.step()"


class Progress:
    """Counts in one line on a terminal, else in a new line at 1, 10, 100, ...."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._ended = 0  # steps, which are backwards until an optimizer steps
        self._next = 1  # the count from which on the next line is written
        self._updated_at = 0.0
        self._is_displayed = False

    def step_ended(self, events: int, optimizer_calls: int) -> None:
        """Count a step.

        Args:
            events: the number of events so far.
            optimizer_calls: the number of calls of ``step`` of optimizers so far.
        """
        self._ended += 1
        if self._quiet or not is_open():
            return
        count = optimizer_calls or self._ended
        ran = count_calls(count) if optimizer_calls else plural(count, "backward")
        line = f"autogradviz: {ran}, {plural(events, 'event')}"
        if not sys.stderr.isatty():
            if count >= self._next:  # several optimizers may have stepped
                write_stderr(f"{line}\n")
                self._next = 10 ** len(str(count))
        elif monotonic() >= self._updated_at + REFRESH_S:
            write_stderr(f"{_ERASE}{line}")
            self._updated_at, self._is_displayed = monotonic(), True

    def end(self) -> None:
        """Erase the line."""
        if self._is_displayed:
            write_stderr(_ERASE)
