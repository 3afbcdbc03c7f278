"""The trace: one recording and everything that can be asked of it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from autogradviz.errors import RecordingStateError
from autogradviz.model import Model

if TYPE_CHECKING:
    from autogradviz.log import Log


class Trace:
    """One recording."""

    def __init__(self, log: Log | None = None) -> None:
        self._log = log

    def fill(self, log: Log) -> None:
        """Give the trace its events; the recording has ended."""
        self._log = log

    @property
    def log(self) -> Log:
        """All events.

        Raises:
            RecordingStateError: while the recording is open.
        """
        if self._log is None:
            message = "the trace is being recorded; leave the with block before reading it"
            raise RecordingStateError(message)
        return self._log

    @cached_property
    def model(self) -> Model:
        """What the events mean: graph, tensor histories, checkpoint regions, memory."""
        return Model(self.log)

    def annotate(self, error: BaseException) -> None:
        pass
