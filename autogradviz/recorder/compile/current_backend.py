"""The name of the backend that compiles, from the functions on the stack.

Neither the graph nor its options name the backend.
"""

from __future__ import annotations

import sys
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import CodeType, FrameType

_CALLER: Final = ("output_graph.py", "_call_user_compiler")
_WRAPPERS: Final = frozenset({"after_dynamo.py", "__init__.py", "contextlib.py"})
"""Files of functions between Dynamo and the backend: a wrapper for each way to name one."""
_INDUCTOR: Final = "_inductor"
_CLASS: Final = ("common.py", "__call__")
"""Backends of ``aot_autograd`` are objects of a class without a name."""


def backend_name() -> str:
    """Return the name of the backend that Dynamo has called on this thread, "" without one."""
    inner: list[CodeType] = []
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way
    while frame is not None:
        code = frame.f_code
        if (PurePath(code.co_filename).name, code.co_name) == _CALLER:
            return _first_name(inner)
        inner.append(code)
        frame = frame.f_back
    return ""


def _first_name(inner: list[CodeType]) -> str:
    for code in reversed(inner):
        path = PurePath(code.co_filename)
        if _INDUCTOR in path.parts:
            return "inductor"
        if path.name not in _WRAPPERS and (path.name, code.co_name) != _CLASS:
            return code.co_name
    return ""
