"""The line of the program that runs now."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from autogradviz.event_log.stacks import line_of_file
from autogradviz.recorder.torch_internals.hide_frames_from_warnings import source_file
from autogradviz.recorder.user_code_frames import is_user_code

if TYPE_CHECKING:
    from collections.abc import Container

    from autogradviz.analysis.types import SourceLocation


def user_line() -> SourceLocation | None:
    """Return the innermost line of the user's code that runs now, None if there is none."""
    frame: Any = sys._getframe(1)  # noqa: SLF001
    while frame is not None and not is_user_code(frame.f_code):
        frame = frame.f_back
    return None if frame is None else line_of_frame(frame)


def line_of_frame(frame: Any) -> SourceLocation:
    """Return the line at which a frame is."""
    code = frame.f_code
    return line_of_file(code.co_filename, frame.f_lineno, code.co_name)


def runs_line(filename: str, lines: Container[int]) -> bool:
    """Return whether the innermost line of the user that runs is one of the lines of a file.

    Lines of installed packages that the line calls do not count.
    """
    frame: Any = sys._getframe(1)  # noqa: SLF001
    while frame is not None:
        if is_at(frame, filename, lines):
            return True
        if is_user_code(frame.f_code) and "site-packages" not in frame.f_code.co_filename:
            return False
        frame = frame.f_back
    return False


def is_at(frame: Any, filename: str, lines: Container[int]) -> bool:
    """Return whether a frame is at one of the lines of a file."""
    return frame.f_lineno in lines and source_file(frame.f_code) == filename
