"""How far a recording is, on standard error."""

from __future__ import annotations

import sys
from contextlib import suppress
from time import monotonic
from typing import Final

from autogradviz.scene.formatting import plural

PAUSE_S: Final = 0.25
"""Between two changes of the line on a terminal."""

_ERASE: Final = "\r\x1b[K"


def say(text: str) -> None:
    """Write on standard error, unless the program has closed it."""
    if _is_open():
        with suppress(OSError):
            sys.stderr.write(text)
            sys.stderr.flush()


def _is_open() -> bool:
    return sys.stderr is not None and not sys.stderr.closed


class Progress:
    """One line that is written anew on a terminal; elsewhere a line at step 1, 10, 100, ...."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._steps = 0
        self._shown_at = 0.0
        self._is_shown = False

    def step_ended(self, events: int) -> None:
        """Count a step; ``events`` were seen so far."""
        self._steps += 1
        if self._quiet or not _is_open():
            return
        line = f"autogradviz: {plural(self._steps, 'step')}, {plural(events, 'event')}"
        if not sys.stderr.isatty():
            if set(str(self._steps)[1:]) <= {"0"} and str(self._steps)[0] == "1":
                say(f"{line}\n")
        elif monotonic() >= self._shown_at + PAUSE_S:
            say(f"{_ERASE}{line}")
            self._shown_at, self._is_shown = monotonic(), True

    def end(self) -> None:
        """Take the line away again."""
        if self._is_shown:
            say(_ERASE)
