"""Frames of Python stacks: which code is the user's, and its lines."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeAlias

import torch

from autogradviz.recorder.torch_internals.hide_frames_from_warnings import source_file
from autogradviz.support.source_lines_and_libraries import is_library as is_library_file

if TYPE_CHECKING:
    from types import CodeType, FrameType


Place: TypeAlias = "tuple[CodeType, int, FrameType | TracebackType | None]"
"""An instruction: code object, offset, and a frame or traceback that knows the line, if any."""

EXCERPT_LINES: Final = 3  # recorded before and after each user line

_INTERCEPTORS: Final = frozenset({"__torch_function__", "__torch_dispatch__"})
RECORDER_FOLDER: Final = str(Path(__file__).parent) + os.sep
_TORCH: Final = str(Path(torch.__file__).parent) + os.sep
_INDUCTOR: Final = os.sep + "torchinductor_"  # its folder below that for temporary files


def is_generated(filename: str) -> bool:
    """Return whether a compiler wrote the code of a file: torch.fx, or Inductor."""
    folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR", "")  # PyTorch sets it at the first use
    return (
        filename.startswith("<eval_with_key>")
        or _INDUCTOR in filename
        or (folder != "" and filename.startswith(folder + os.sep))
    )


def is_library(filename: str) -> bool:
    """Return whether a file belongs to a library, or a compiler wrote its code."""
    return is_library_file(filename) or is_generated(filename)


def is_user_code(code: CodeType) -> bool:
    """Return whether a line of a function can be the one that called an operator."""
    # A handler that the ops of other code pass through is not the line that called them.
    return code.co_name not in _INTERCEPTORS and not is_library(source_file(code))


def is_torch_code(code: CodeType) -> bool:
    """Return whether a function belongs to PyTorch."""
    return source_file(code).startswith(_TORCH)


def line_at(place: Place) -> int:
    """Return the line of an instruction, or of the nearest one before it that has a line."""
    code, offset, source = place
    if source is None:
        return line_of(code, offset)
    line = source.tb_lineno if isinstance(source, TracebackType) else source.f_lineno
    return line_of(code, offset) if line is None else line


def line_of(code: CodeType, offset: int) -> int:
    """Return the line of an instruction, or of the nearest one before it that has a line."""
    lines = [line for first, _, line in code.co_lines() if first <= offset and line is not None]
    return lines[-1] if lines else code.co_firstlineno


def cell_number(filename: str) -> int | None:
    """Return the number of the notebook cell that IPython compiled as a file: 3 of ``In [3]``."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    names = getattr(getattr(shell, "compile", None), "_filename_map", None)
    number = names.get(filename) if isinstance(names, dict) else None
    return number if isinstance(number, int) else None


def places_of_frame(frame: FrameType | None, outermost: int) -> list[Place]:
    """Return the instructions of a frame and its callers, the innermost first.

    Args:
        frame: the innermost one.
        outermost: ``id`` of the frame at which to end.
    """
    places: list[Place] = []
    while frame is not None:
        places.append((frame.f_code, frame.f_lasti, frame))
        if id(frame) == outermost:
            break
        frame = frame.f_back
    return places


def places_of_traceback(traceback: TracebackType | None) -> list[Place]:
    """Return the instructions at which an exception was raised, the innermost first."""
    places: list[Place] = []
    while traceback is not None:
        places.append((traceback.tb_frame.f_code, traceback.tb_lasti, traceback))
        traceback = traceback.tb_next
    places.reverse()
    return places


def running_cell() -> int | None:
    """Return the number of the notebook cell that runs; IPython 9.18 counts before it runs one."""
    codes = (code for code, _, _ in places_of_frame(sys._getframe(), 0))  # noqa: SLF001
    return next((number for code in codes if (number := cell_number(code.co_filename))), None)
