"""``%autogradviz on``: record every cell; the traceback of one that raises has the finding."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from autogradviz.recording.open_ended import OpenEndedRecording
from autogradviz.recording_options import RecordingOptions
from autogradviz.support.process import print_line

if TYPE_CHECKING:
    from types import TracebackType

    from IPython.core.interactiveshell import ExecutionInfo, ExecutionResult, InteractiveShell

    from autogradviz.trace import Trace

_OWN: Final = re.compile(r"\s*%{1,2}autogradviz\b")


def is_own_magic(cell: str) -> bool:
    """Return whether a cell begins with a magic of autogradviz."""
    return _OWN.match(cell) is not None


class AutomaticRecording:
    """Records each cell that a shell runs.

    Attributes:
        trace: of the last cell that was recorded; None before the first one.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._recording: OpenEndedRecording | None = None
        self._is_on = False
        self.trace: Trace | None = None

    def begin(self) -> None:
        """Record every cell from the next one on."""
        if self._is_on:
            return
        self._is_on = True
        events: Any = self._shell.events
        events.register("pre_run_cell", self._before)
        events.register("post_run_cell", self._after)
        # Tracebacks are printed before the event after the cell.
        self._shell.set_custom_exc((Exception,), self._show)  # type: ignore[no-untyped-call]

    def end(self) -> None:
        """Record no further cells."""
        if not self._is_on:
            return
        self._is_on = False
        events: Any = self._shell.events
        events.unregister("pre_run_cell", self._before)
        events.unregister("post_run_cell", self._after)
        self._shell.set_custom_exc((), None)  # type: ignore[no-untyped-call]
        self._finish(None)

    def _before(self, info: ExecutionInfo) -> None:
        if not is_own_magic(str(info.raw_cell)):
            self._recording = OpenEndedRecording(RecordingOptions())
            self._recording.begin()

    def _show(
        self,
        shell: InteractiveShell,
        kind: type[BaseException],
        error: BaseException,
        traceback: TracebackType | None,
        tb_offset: int | None = None,
    ) -> None:
        """Add the finding to an exception that leaves a cell, and show its traceback."""
        self._finish(error)
        shell.showtraceback((kind, error, traceback), tb_offset=tb_offset)

    def _after(self, _result: ExecutionResult) -> None:
        trace = self._finish(None)
        found = [] if trace is None else trace.diagnose()
        certain = [each for each in found if each.confidence != "hint"]
        if certain:
            print_line(f"{certain[0].title}; %autogradviz last shows it")

    def _finish(self, error: BaseException | None) -> Trace | None:
        """Finish the recording of a cell, if there is one; return its trace."""
        recording, self._recording = self._recording, None
        if recording is None:
            return None
        trace = recording.finish(error)
        if trace is not None:
            self.trace = trace
        return trace
