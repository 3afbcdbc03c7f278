"""Source lines and their parse trees; libraries, installed packages and frames."""

from __future__ import annotations

import ast
import linecache
import os
import re
import stat
import sys
import sysconfig
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autogradviz.support.locks_gc_and_stderr import collector_waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


# --- parse Python source with the garbage collector paused ----------------------------------------


def parse(source: str) -> ast.Module:
    """Return the syntax tree of a source text, as ``ast.parse`` does.

    If the collector runs a finalizer that parses something as well, CPython 3.11 raises a
    ``SystemError``.
    """
    with collector_waiting():
        return ast.parse(source)


def lines_of(node: ast.AST) -> range:
    """Return the lines of a statement or an expression; none of a node that has no place."""
    first = getattr(node, "lineno", 0)
    return range(first, (getattr(node, "end_lineno", None) or first) + 1) if first else range(0)


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
    try:
        return linecache.getlines(filename)
    except ValueError:  # no system has a file of this name: "\0"
        return []


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


# --- frames ---------------------------------------------------------------------------------------


def with_callers(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and its callers, innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


# --- files of libraries and of installed packages -------------------------------------------------


_PACKAGES: Final = re.compile(r"(?s).*[/\\](?:site|dist)-packages[/\\]")
_ELSEWHERE: Final = re.compile(
    r"[/\\](?:site|dist)-packages[/\\]torch[/\\]|"
    r"[/\\]lib[/\\]python3\.\d+[/\\](?!(?:site|dist)-packages)"
)
"""Files of PyTorch and of the standard library where another machine has them."""

_OWN: Final = str(Path(__file__).parents[1]) + os.sep
_DEMO: Final = _OWN + "demo" + os.sep


@cache
def _library_folders() -> tuple[str, ...]:
    torch = find_spec("torch")  # without importing it
    folders = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    folders += [] if torch is None or torch.origin is None else [str(Path(torch.origin).parent)]
    return (_OWN, *(folder + os.sep for folder in folders))


@lru_cache(maxsize=4_096)  # a recording asks for each of its frames
def is_library(filename: str) -> bool:
    """Return whether a file belongs to PyTorch, the standard library or autogradviz itself."""
    if filename.startswith("<frozen "):
        return True
    if not filename.startswith(_library_folders()) or filename.startswith(_DEMO):
        return False
    # Other packages are installed below the standard library's folder; they count as user code.
    return any(
        filename.startswith(folder) and "-packages" not in filename[len(folder) :]
        for folder in _library_folders()
    )


def is_library_anywhere(filename: str) -> bool:
    """Return whether a file of this or another machine belongs to a library."""
    return is_library(filename) or _ELSEWHERE.search(filename) is not None


def path_in_packages(filename: str) -> str | None:
    """Return the path of a file in its folder of installed packages, None for other files."""
    folder = _PACKAGES.match(filename)
    return None if folder is None else filename[folder.end() :]


def is_installed(filename: str) -> bool:
    """Return whether a file is in a folder of installed packages; the demo counts as the user's."""
    path = path_in_packages(filename)
    return path is not None and not path.replace("\\", "/").startswith("autogradviz/demo/")
