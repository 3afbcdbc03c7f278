"""Messages and the progress line of a recording, on standard error."""

from __future__ import annotations

import sys
from time import monotonic
from typing import Final

from autogradviz.analysis.formatting import plural
from autogradviz.support.process import is_open, write_stderr

REFRESH_S: Final = 0.25
"""Shortest time between two updates of the line on a terminal, in seconds."""

_ERASE: Final = "\r\x1b[K"


class Progress:
    """Counts steps: in one line on a terminal, else in a new line at step 1, 10, 100, ...."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self.steps = 0
        """Steps that an optimizer ended."""
        self._ended = 0  # steps, of which those before the first optimizer steps are backwards
        self._updated_at = 0.0
        self._is_displayed = False

    def step_ended(self, events: int, steps: int) -> None:
        """Count a step.

        Args:
            events: the number of events so far.
            steps: the number of steps that an optimizer ended so far.
        """
        self._ended += 1
        self.steps = steps
        if self._quiet or not is_open():
            return
        count = self.steps or self._ended
        ran = plural(count, "optimizer step" if self.steps else "backward")
        line = f"autogradviz: {ran}, {plural(events, 'event')}"
        if not sys.stderr.isatty():
            if set(str(count)[1:]) <= {"0"} and str(count)[0] == "1":
                write_stderr(f"{line}\n")
        elif monotonic() >= self._updated_at + REFRESH_S:
            write_stderr(f"{_ERASE}{line}")
            self._updated_at, self._is_displayed = monotonic(), True

    def end(self) -> None:
        """Erase the line."""
        if self._is_displayed:
            write_stderr(_ERASE)
