"""Source lines and their parse trees."""

from __future__ import annotations

import ast
import linecache
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from autogradviz.support.process import collector_waiting

if TYPE_CHECKING:
    from collections.abc import Callable


# --- parse Python source with the garbage collector paused ----------------------------------------


def parse(source: str) -> ast.Module:
    """Return the syntax tree of a source text, as ``ast.parse`` does.

    If the collector runs a finalizer that parses something as well, CPython 3.11 raises a
    ``SystemError``.
    """
    with collector_waiting():
        return ast.parse(source)


# --- source lines ---------------------------------------------------------------------------------
#
# Lines of source files, as tracebacks read them, but only of files that can be read at once.
#
# The name of a file is whatever was passed to ``compile``. Opening a named pipe waits for its
# writer, and reading a terminal takes the input of the program.


def source_lines(filename: str) -> list[str]:
    """Return the lines of a file, with their ends; an empty list if it cannot be read."""
    if filename not in linecache.cache and not _is_readable(filename):
        return []
    return linecache.getlines(filename)


def source_line(filename: str, lineno: int) -> str:
    """Return a line of a file, counted from 1, with its end; "" if it cannot be read."""
    lines = source_lines(filename)
    return lines[lineno - 1] if 0 < lineno <= len(lines) else ""


def forget_changed_lines() -> None:
    """Read files again that have changed since they were read."""
    linecache.checkcache()


def provide_lines(filename: str, read: Callable[[], str]) -> None:
    """Have tracebacks read the text of a file that does not exist, when they need it."""
    linecache.cache.setdefault(filename, (read,))


def _is_readable(filename: str) -> bool:
    """Return whether the file that ``linecache`` would read is a regular one."""
    path = Path(filename)
    folders = () if path.is_absolute() else [each for each in sys.path if isinstance(each, str)]
    for each in (path, *(Path(folder, filename) for folder in folders)):
        try:
            return stat.S_ISREG(each.stat().st_mode)
        except (OSError, ValueError):
            continue
    return True  # a loader may have its text


# --- text that UTF-8 can encode -------------------------------------------------------------------


def escape_surrogates(text: str) -> str:
    """Return text with lone surrogates escaped, which UTF-8 cannot encode."""
    return text.encode("utf-8", "backslashreplace").decode()
