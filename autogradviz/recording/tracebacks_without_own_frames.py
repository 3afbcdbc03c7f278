"""Tracebacks without the frames of autogradviz, which are those of the plain program then."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

OWN_FOLDER: Final = str(Path(__file__).parent.parent) + os.sep
_RECORDER: Final = OWN_FOLDER + "recorder" + os.sep
_TORCH_OPS: Final = os.path.join("torch", "_ops.py")  # noqa: PTH118 - the end of a path
"""Its frames come after those of the recorder when an op was recorded."""


def remove_recorder_frames(error: BaseException) -> None:
    """Remove the recorder's frames from an exception that leaves a recording."""
    change_tracebacks(error, lambda each: without_frames(each.__traceback__, _RECORDER))


def change_tracebacks(
    error: BaseException, change: Callable[[BaseException], TracebackType | None]
) -> None:
    """Change the tracebacks of an exception, its causes and its contexts."""
    waiting: list[BaseException | None] = [error]
    done: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in done:
            done.add(id(each))
            changed = change(each)
            if changed is not each.__traceback__:
                each.__traceback__ = changed
            waiting += [each.__cause__, each.__context__]


def without_frames(traceback: TracebackType | None, folder: str) -> TracebackType | None:
    """Return a traceback, changed in place, without the frames of the files below a folder."""
    kept: list[TracebackType] = []
    is_below_own = False
    while traceback is not None:
        filename = traceback.tb_frame.f_code.co_filename
        is_below_own = filename.startswith(folder) or (
            is_below_own and filename.endswith(_TORCH_OPS)
        )
        if not is_below_own:
            kept.append(traceback)
        traceback = traceback.tb_next
    for outer, inner in pairwise([*kept, None]):
        assert outer is not None
        if outer.tb_next is not inner:
            outer.tb_next = inner
    return kept[0] if kept else None
