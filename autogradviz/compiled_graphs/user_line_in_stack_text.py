"""The user's line in the text of a stack, as compilers keep it with each op."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final, NamedTuple

from autogradviz.support.source_lines_and_libraries import is_library_anywhere

_FRAME: Final = re.compile(r'^\s*File "(.+)", line (\d+), in (.+)$')


class Line(NamedTuple):
    """A line of a program."""

    filename: str
    lineno: int
    function: str
    text: str
    library: bool


NO_LINE: Final = Line("", 0, "", "", library=True)


@lru_cache(maxsize=4_096)
def innermost_user_line(stack: str | None) -> Line:
    """Return the innermost line of user code in a stack, or its innermost line without one."""
    found = NO_LINE
    lines = (stack or "").splitlines()
    for number, text in enumerate(lines):
        frame = _FRAME.match(text)
        if frame is None:
            continue
        filename, lineno, function = frame.groups()
        following = lines[number + 1] if number + 1 < len(lines) else ""
        source = "" if _FRAME.match(following) else following.strip()
        library = is_library_anywhere(filename)
        if not library or found.library:
            found = Line(filename, int(lineno), function, source, library)
    return found


def line_of_frames(frames: Any) -> Line:
    """Return the innermost line of user code among ``traceback.FrameSummary`` objects."""
    found = NO_LINE
    for frame in frames or ():
        library = is_library_anywhere(frame.filename)
        if not library or found.library:
            found = Line(frame.filename, frame.lineno or 0, frame.name, frame.line or "", library)
    return found
