"""The line of the program that runs now."""

from __future__ import annotations

import sys
from typing import Any

from autogradviz.analysis.types import SourceLocation
from autogradviz.recorder.user_code_frames import is_user_code
from autogradviz.support.source_lines import source_line


def user_line() -> SourceLocation | None:
    """Return the innermost line of the user's code that runs now, None if there is none."""
    frame: Any = sys._getframe(1)  # noqa: SLF001
    while frame is not None and not is_user_code(frame.f_code):
        frame = frame.f_back
    if frame is None:
        return None
    name, line = frame.f_code.co_filename, frame.f_lineno
    text = source_line(name, line).strip()
    return SourceLocation(filename=name, lineno=line, function=frame.f_code.co_name, text=text)
