"""The line of the program that runs now."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from autogradviz.event_log.stacks import line_of_file
from autogradviz.recorder.torch_internals.hide_frames_from_warnings import source_file
from autogradviz.recorder.user_code_frames import is_user_code
from autogradviz.support.source_lines_and_libraries import is_installed, with_callers

if TYPE_CHECKING:
    from collections.abc import Container

    from autogradviz.analysis.types import SourceLocation


def user_line() -> SourceLocation | None:
    """Return the innermost line of the user's code that runs now, None if there is none."""
    return user_line_below("")[0]


def user_line_below(function: str) -> tuple[SourceLocation | None, bool]:
    """Return the same line, and whether it runs below a function of a name."""
    frames = with_callers(sys._getframe())  # noqa: SLF001
    frame = next((each for each in frames if is_user_code(each.f_code)), None)
    below = bool(function) and any(each.f_code.co_name == function for each in frames)
    return None if frame is None else line_of_frame(frame), frame is not None and below


def line_of_frame(frame: Any) -> SourceLocation:
    """Return the line at which a frame is."""
    code = frame.f_code
    return line_of_file(code.co_filename, frame.f_lineno, code.co_name)


def runs_line(filename: str, lines: Container[int]) -> bool:
    """Return whether the innermost line of the user that runs is one of the lines of a file.

    Lines of installed packages that the line calls do not count.
    """
    for frame in with_callers(sys._getframe()):  # noqa: SLF001
        if is_at(frame, filename, lines):
            return True
        if is_user_code(frame.f_code) and not is_installed(frame.f_code.co_filename):
            return False
    return False


def is_at(frame: Any, filename: str, lines: Container[int]) -> bool:
    """Return whether a frame is at one of the lines of a file."""
    return frame.f_lineno in lines and source_file(frame.f_code) == filename
