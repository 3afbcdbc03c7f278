"""``enable``: record a script from now on, and write a trace when it fails."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autogradviz.errors import RecordingStateError
from autogradviz.recording.break_on_argument import read_conditions
from autogradviz.recording.record_between_callbacks import OpenEndedRecording, describe_saved
from autogradviz.recording.record_context_manager import check_model
from autogradviz.recording_options import RecordingOptions
from autogradviz.render.terminal_text import as_text, render_findings
from autogradviz.support.locks_gc_and_stderr import print_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType, TracebackType

    import torch

    from autogradviz.recording.break_on_argument import BreakOn
    from autogradviz.trace import Trace

_enabled: _Enabled | None = None


def enable(
    folder: str | os.PathLike[str] = ".",
    model: torch.nn.Module | None = None,
    *,
    keep_steps: int = 3,
    fingerprints: bool = False,
    break_on: BreakOn | Sequence[BreakOn] | None = None,
) -> None:
    """Record from now on, like ``faulthandler.enable()``; write a trace if something is wrong.

    If an exception ends the program, its traceback shows the finding, and the last steps are
    written to ``folder``. At exit they are written if anything was found. SIGTERM, which ends the
    process as before, writes them too, if no other handler is installed.

    Args:
        folder: of the trace, which has the name of the script.
        model: gives names to modules and parameters.
        keep_steps: keep only the last N training steps.
        fingerprints: also record hashes of contents, as ``record`` does.
        break_on: open the debugger when an event matches, as ``record`` does.

    Raises:
        RecordingStateError: if it is enabled already.
        AlreadyRecordingError: if another recording is open.
        NotADirectoryError: if ``folder`` is a file, or would be in one.
        PermissionError: if nothing can be written there.
        TypeError: if ``model`` is no module.
        ValueError: if ``keep_steps`` is not positive, or ``break_on`` is no condition.

    Example:
        >>> autogradviz.enable("traces")
        >>> model(x).sum().backward()
        >>> autogradviz.disable()
    """
    global _enabled  # noqa: PLW0603 - one recording a process
    if _enabled is not None:
        message = "autogradviz.enable() was called before; call autogradviz.disable() first"
        raise RecordingStateError(message)
    check_model(model, "enable()")
    options = RecordingOptions(
        keep_steps=keep_steps,
        fingerprints=fingerprints,
        break_on=read_conditions(break_on, model),
    )
    target = Path(folder).absolute()
    existing = next(each for each in (target, *target.parents) if each.exists())
    if not existing.is_dir():
        message = f"{folder if existing == target else existing} is not a folder"
        raise NotADirectoryError(message)
    if not os.access(existing, os.W_OK):
        message = f"traces cannot be written to {folder}: no permission to write in {existing}"
        raise PermissionError(message)
    recording = OpenEndedRecording(options)
    recording.begin(id(sys._getframe(1)), model=model)  # noqa: SLF001 - the documented way
    _enabled = _Enabled(recording, target)


def disable() -> None:
    """Stop recording; nothing is written. Without ``enable``, nothing happens.

    Example:
        >>> autogradviz.disable()
    """
    global _enabled
    enabled, _enabled = _enabled, None
    if enabled is not None:
        enabled.remove()
        enabled.recording.finish()


class _Enabled:
    """The handlers that end the recording."""

    def __init__(self, recording: OpenEndedRecording, folder: Path) -> None:
        self.recording = recording
        self._folder = folder
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        self._stem = Path(main).stem if main else "session"
        self._process_id = os.getpid()
        self._original: Callable[..., Any] = sys.excepthook
        sys.excepthook = self._on_exception
        atexit.register(self._at_exit)
        self._handles_sigterm = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        )
        if self._handles_sigterm:
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def remove(self) -> None:
        """Remove the handlers, unless others have replaced them."""
        if sys.excepthook == self._on_exception:
            sys.excepthook = self._original
        atexit.unregister(self._at_exit)
        if self._handles_sigterm and signal.getsignal(signal.SIGTERM) == self._on_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _on_exception(
        self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        trace = None if isinstance(error, KeyboardInterrupt) else self._finish(error)
        self._original(kind, error, traceback)
        if trace is not None:
            print_line(describe_saved(trace, self._folder, self._stem))

    def _at_exit(self) -> None:
        trace = self._finish(None)
        found = [] if trace is None else trace.diagnose()
        if trace is not None and found:
            print_line(f"found\n{as_text(render_findings(found))}")
            print_line(describe_saved(trace, self._folder, self._stem))

    def _on_sigterm(self, number: int, _frame: FrameType | None) -> None:
        recording = self.recording
        if recording.is_open and recording.trace is not None:
            copy = recording.trace.snapshot()
            print_line(describe_saved(copy, self._folder, self._stem))
        self._handles_sigterm = False
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _finish(self, error: BaseException | None) -> Trace | None:
        """Finish the recording once; return its trace."""
        if os.getpid() != self._process_id:
            return None
        return self.recording.finish(error)
