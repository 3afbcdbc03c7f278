"""The traceback of a program under ``autogradviz run``, without the frames of autogradviz."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from autogradviz.cli.run_as_main import EXECUTE_CODE, run_as_main
from autogradviz.recording.tracebacks_without_own_frames import (
    OWN_FOLDER,
    change_tracebacks,
    without_frames,
)
from autogradviz.support.source_lines_and_libraries import with_callers

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


def strip_own_frames(error: BaseException) -> None:
    """Remove the frames of autogradviz from an exception, its causes and its contexts."""
    change_tracebacks(
        error, lambda each: without_frames(_from_program(each.__traceback__), OWN_FOLDER)
    )


def _from_program(traceback: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that begins with the program's first frame."""
    rest, is_ours = traceback, False
    while rest is not None:
        code = rest.tb_frame.f_code
        if code is EXECUTE_CODE:
            return rest.tb_next
        if code is run_as_main.__code__:  # the program was being found, read or compiled
            is_ours = True
        elif is_ours and not code.co_filename.startswith((OWN_FOLDER, "<frozen importlib")):
            return rest
        rest = rest.tb_next
    return None if is_ours else traceback


def install_excepthook(error: BaseException, callback: Callable[[], None]) -> None:
    """Let Python print an exception without the frames of autogradviz, then call back."""
    original = sys.excepthook

    def show(kind: type[BaseException], value: BaseException, traceback: Any) -> None:
        if value is error:
            strip_own_frames(value)
            traceback = value.__traceback__
        original(kind, value, traceback)
        callback()

    sys.excepthook = show


def outermost_frame() -> int:
    """Return the ``id`` of the frame that called the program, 0 while it does not run."""
    frames = with_callers(sys._getframe())  # noqa: SLF001 - the documented way
    return next((id(each) for each in frames if each.f_code is EXECUTE_CODE), 0)
