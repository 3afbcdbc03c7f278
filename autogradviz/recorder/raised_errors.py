"""The exceptions behind the one that left the recorded block, down to an error of PyTorch.

Programs wrap errors: ``raise ValueError("step 7") from error``, task groups, another exception in
an ``except`` block. What is to be explained is the error that PyTorch raised.
"""

from __future__ import annotations

import opcode
from typing import TYPE_CHECKING, Any, Final

from autogradviz.recorder.user_code_frames import is_torch_code

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

_RAISES: Final = frozenset({opcode.opmap["RAISE_VARARGS"], opcode.opmap["RERAISE"]})
_MAX_ERRORS: Final = 1_000


def explained_error(error: BaseException) -> BaseException:
    """Return the error of PyTorch that led to an exception; the exception if there is none."""
    return next((each for each in _chain(error) if _is_of_torch(each)), error)


def describe(error: BaseException) -> tuple[str, str]:
    """Return the qualified name of the type of an exception, and its text."""
    kind = type(error)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - ``__str__`` of the user's class
        text = ""
    return f"{module}{kind.__qualname__}", text


def frames_of(error: BaseException) -> Iterator[Any]:
    """Yield the frames that an exception passed through, the outermost first."""
    traceback = error.__traceback__
    while traceback is not None:
        yield traceback.tb_frame
        traceback = traceback.tb_next


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, then what it groups, its cause and its context, each with theirs."""
    waiting, seen = [error], {id(error)}
    while waiting and len(seen) < _MAX_ERRORS:
        each = waiting.pop()
        yield each
        # Python displays no context after ``from None``, but it is what happened before.
        behind = [*_grouped(each), _CAUSE(each), _CONTEXT(each)]
        for other in reversed(behind):
            if isinstance(other, BaseException) and id(other) not in seen:
                seen.add(id(other))
                waiting.append(other)


_CAUSE: Final[Any] = vars(BaseException)["__cause__"].__get__
_CONTEXT: Final[Any] = vars(BaseException)["__context__"].__get__
"""Read the attributes as Python does, whatever a class of the user does."""


def _grouped(error: BaseException) -> tuple[Any, ...]:
    try:
        # ``BaseExceptionGroup``, which packages also define for Python 3.10
        found = error.exceptions  # type: ignore[attr-defined]
        return tuple(found) if isinstance(found, (tuple, list)) else ()
    except Exception:  # noqa: BLE001 - most have none; an attribute of the user's class
        return ()


def _is_of_torch(error: BaseException) -> bool:
    if not isinstance(error, Exception):
        return False
    if type(error).__module__.partition(".")[0] == "torch":
        return True
    innermost = _innermost(error.__traceback__)
    if innermost is None:
        return False
    code, offset = innermost.tb_frame.f_code, innermost.tb_lasti
    if is_torch_code(code):
        return True
    # C++ raised it, if the instruction is no ``raise``; most errors of operators are of this type.
    return type(error) is RuntimeError and code.co_code[offset] not in _RAISES


def _innermost(traceback: TracebackType | None) -> TracebackType | None:
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback
