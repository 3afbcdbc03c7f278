"""Frames of ours that ``warnings`` does not count.

A warning says which line it is about by a number of callers, ``stacklevel``, and Python shows it
once a line. A frame of ours between the user's would move it to another line, where it may have
been shown already. ``warnings`` passes by the frames of the import system, which it tells by two
words in a file's name; ``logging`` does the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

F = TypeVar("F", bound="Callable[..., Any]")

PASSED_BY: Final = " (passed by, as importlib._bootstrap is)"
"""Behind the name of our file, so that the frame is still known as ours."""

_made: dict[int, tuple[CodeType, CodeType]] = {}
"""By the address of a code, which the first of the two keeps. A closure is made often."""


def skip_in_stacklevel(function: F) -> F:
    """Let warnings that are raised below a function be about the line they are about without it."""
    code = function.__code__
    made = _made.get(id(code))
    if made is None:
        made = code, code.replace(co_filename=code.co_filename + PASSED_BY)
        _made[id(code)] = made
    function.__code__ = made[1]
    return function
