"""The user's line in the text of a stack, as compilers keep it with each op."""

from __future__ import annotations

import os
import re
import sysconfig
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

_FRAME: Final = re.compile(r'^\s*File "(.+)", line (\d+), in (.+)$')


_INSTALLED: Final = re.compile(
    r"[/\\](?:site|dist)-packages[/\\]torch[/\\]|"
    r"[/\\]lib[/\\]python3\.\d+[/\\](?!(?:site|dist)-packages)"
)
"""Files of PyTorch and of the standard library, also where another machine has them."""


class Line(NamedTuple):
    """A line of a program."""

    filename: str
    lineno: int
    function: str
    text: str
    library: bool


NO_LINE: Final = Line("", 0, "", "", library=True)


@cache
def _library_roots() -> tuple[str, ...]:
    torch = find_spec("torch")  # without importing it
    folders = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    folders += [] if torch is None or torch.origin is None else [str(Path(torch.origin).parent)]
    return tuple(folder + os.sep for folder in folders)


def is_library(filename: str) -> bool:
    """Return whether a file belongs to PyTorch or to the standard library."""
    if filename.startswith("<frozen ") or _INSTALLED.search(filename):
        return True
    # Other packages are installed below the standard library's folder; they count as user code.
    return any(
        filename.startswith(root) and "-packages" not in filename[len(root) :]
        for root in _library_roots()
    )


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
        library = is_library(filename)
        if not library or found.library:
            found = Line(filename, int(lineno), function, source, library)
    return found


def line_of_frames(frames: Any) -> Line:
    """Return the innermost line of user code among ``traceback.FrameSummary`` objects."""
    found = NO_LINE
    for frame in frames or ():
        library = is_library(frame.filename)
        if not library or found.library:
            found = Line(frame.filename, frame.lineno or 0, frame.name, frame.line or "", library)
    return found
