"""The file from which the last steps can be read if the process is killed or aborts.

With ``keep_steps``, the last steps are in memory and written when something goes wrong. A process
that aborts in C++, or is killed, writes nothing. So one of several ranks writes them from time to
time, and deletes the file when the recording ends.
"""

from __future__ import annotations

from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final

from autogradviz import event_log
from autogradviz.errors import AutogradvizError
from autogradviz.support.process import last_steps_path

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from autogradviz.event_log import Log

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
