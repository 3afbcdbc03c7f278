"""Keep the frames of wrapper functions out of the line that a warning is attributed to.

A warning names a line by a number of callers, ``stacklevel``, and Python shows it once for each
line. The frame of a wrapper between the user's frames would attribute it to another line, where it
may have been shown already. ``warnings`` and ``logging`` skip the frames of the import system,
which they recognize by the words ``importlib`` and ``_bootstrap`` in the file name of a frame's
code. Nothing else makes them skip our frame when another package warns.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from autogradviz.support.source_lines_and_libraries import provide_lines

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

F = TypeVar("F", bound="Callable[..., Any]")

WRAPPER_SUFFIX: Final = " (autogradviz, importlib._bootstrap)"
"""Follows the path of the source file, so that a traceback says which file it is.

Users see it only where they catch an exception while a recording runs: the frames are removed from
an exception that leaves it.
"""

_renamed: dict[int, tuple[CodeType, CodeType]] = {}
"""By address of a code object: that object, which keeps the address in use, and its copy."""


def skip_in_stacklevel(function: F) -> F:
    """Exclude this function's frame from the ``stacklevel`` count of ``warnings``."""
    code = function.__code__
    renamed = _renamed.get(id(code))
    if renamed is None:
        path = code.co_filename + WRAPPER_SUFFIX
        renamed = code, code.replace(co_filename=path)
        _renamed[id(code)] = renamed
        # For tracebacks: the loader of a module that pytest rewrites has no source.
        read = partial(Path(code.co_filename).read_text, encoding="utf-8")
        provide_lines(path, read)
    function.__code__ = renamed[1]
    return function


def source_file(code: CodeType) -> str:
    """Return the path of the source file of a code object, a wrapper's too."""
    return code.co_filename.removesuffix(WRAPPER_SUFFIX)
