"""The traceback of a program under ``autogradviz run``, without the frames of autogradviz."""

from __future__ import annotations

import os
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import autogradviz
from autogradviz.support.source_lines_and_libraries import with_callers

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
from autogradviz.cli.run_as_main import EXECUTE_CODE, run_as_main

_OWN_FOLDER: Final = str(Path(autogradviz.__file__).parent) + os.sep
_TORCH_OPS: Final = os.path.join("torch", "_ops.py")  # noqa: PTH118 - the end of a path
"""Its frames come after those of the recorder when an op was recorded."""


def strip_own_frames(error: BaseException) -> None:
    """Remove the frames of autogradviz from an exception, its causes and its contexts."""
    waiting: list[BaseException | None] = [error]
    done: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in done:
            done.add(id(each))
            each.__traceback__ = _without_own(_from_program(each.__traceback__))
            waiting += [each.__cause__, each.__context__]


def _from_program(traceback: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that begins with the program's first frame."""
    rest, is_ours = traceback, False
    while rest is not None:
        code = rest.tb_frame.f_code
        if code is EXECUTE_CODE:
            return rest.tb_next
        if code is run_as_main.__code__:  # the program was being found, read or compiled
            is_ours = True
        elif is_ours and not code.co_filename.startswith((_OWN_FOLDER, "<frozen importlib")):
            return rest
        rest = rest.tb_next
    return None if is_ours else traceback


def _without_own(traceback: TracebackType | None) -> TracebackType | None:
    kept: list[TracebackType] = []
    is_below_own = False
    while traceback is not None:
        filename = traceback.tb_frame.f_code.co_filename
        is_below_own = filename.startswith(_OWN_FOLDER) or (
            is_below_own and filename.endswith(_TORCH_OPS)
        )
        if not is_below_own:
            kept.append(traceback)
        traceback = traceback.tb_next
    for outer, inner in pairwise([*kept, None]):
        assert outer is not None
        outer.tb_next = inner
    return kept[0] if kept else None


def install_excepthook(error: BaseException, callback: Callable[[], None]) -> None:
    """Let Python print an exception without the frames of autogradviz, then call back."""
    original = sys.excepthook

    def show(kind: type[BaseException], value: BaseException, traceback: Any) -> None:
        if value is error:
            strip_own_frames(value)
            traceback = value.__traceback__
        original(kind, value, traceback)
        callback()

    sys.excepthook = show


def outermost_frame() -> int:
    """Return the ``id`` of the frame that called the program, 0 while it does not run."""
    frames = with_callers(sys._getframe())  # noqa: SLF001 - the documented way
    return next((id(each) for each in frames if each.f_code is EXECUTE_CODE), 0)
