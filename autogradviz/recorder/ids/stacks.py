"""Python stacks, interned: the same stack is described once and has one number.

Walking frames is the dearest thing that the recorder does at every op, so the walk collects
only code objects' addresses and instruction offsets; lines are worked out at the first sight.
It ends where it can: at the frame of the innermost module call or backward, whose own callers
were walked when it began.
"""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeAlias

import torch

import autogradviz
from autogradviz.events import NO_ID, CellSeen, FrameSeen, SourceLineRead, StackSeen
from autogradviz.recorder.ids.notebook_cell import cell_number
from autogradviz.recorder.torch_internals.warning_frames import PASSED_BY

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet
    from types import CodeType, FrameType

    from autogradviz.recorder.recorder import Recorder
    from autogradviz.recorder.threads import ThreadState

Place: TypeAlias = "tuple[CodeType, int, FrameType | TracebackType]"
"""An instruction of some code, and who knows its line."""

MAX_FRAMES: Final = 150
MAX_STACKS: Final = 20_000
"""More stacks than this are not all remembered in a long recording."""

EXCERPT_LINES: Final = 3  # kept before and after each user line

_UNMARKED: Final = (None, NO_ID)
"""Stands for a mark, and the number of what called it, where no frame is marked."""

_INTERCEPTORS: Final = frozenset({"__torch_function__", "__torch_dispatch__"})
_OWN: Final = str(Path(autogradviz.__file__).parent) + os.sep
_TORCH: Final = str(Path(torch.__file__).parent) + os.sep
_DEMO: Final = _OWN + "demo" + os.sep
_SITE: Final = os.sep + "site-packages" + os.sep
_LIBRARY_ROOTS: Final = tuple(
    {
        _TORCH,
        sysconfig.get_path("stdlib") + os.sep,
        sysconfig.get_path("platstdlib") + os.sep,
        _OWN,
    }
)


def is_library(filename: str) -> bool:
    """Return whether a file belongs to torch, the standard library or autogradviz itself."""
    if filename.startswith("<frozen "):
        return True
    if filename.startswith(_DEMO) or not filename.startswith(_LIBRARY_ROOTS):
        return False
    torch_or_own = filename.startswith((_OWN, _TORCH))
    # Other people's packages live below the standard library's folder; they are user code.
    return torch_or_own or _SITE not in filename


def _line_at(place: Place) -> int:
    """Return the line of an instruction, or of the nearest one before it that has a line."""
    code, offset, source = place
    line = source.tb_lineno if isinstance(source, TracebackType) else source.f_lineno
    if line is not None:
        return line
    before = [line for first, _, line in code.co_lines() if first <= offset and line is not None]
    return before[-1] if before else code.co_firstlineno


class StackTable:
    """Gives every distinct Python stack a number and describes it once in the log."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._tell_stack = recorder.emitter(StackSeen)
        self._tell_frame = recorder.emitter(FrameSeen)
        self._tell_line = recorder.emitter(SourceLineRead)
        self._ids: dict[tuple[int, ...], int] = {}
        self._short: dict[tuple[int, ...], int] = {}  # by frames up to a mark
        self._callers: dict[tuple[int, ...], int] = {}  # what called marked frames
        self._frames: dict[tuple[int, int], int] = {}
        self._codes: dict[int, CodeType] = {}  # keeps addresses unique while we use them as names
        self._read: set[tuple[str, int]] = set()
        self._files: dict[str, list[str]] = {}
        self._count = 0
        self._frame_count = 0
        self._caller_count = 0
        self.outermost = 0
        """``id`` of the frame that opened the recording: stacks end there."""

    def capture(self, depth: int, state: ThreadState | None = None) -> int:
        """Return the number of the stack that called, ``depth`` frames above this one."""
        try:
            frame = sys._getframe(depth + 1)  # noqa: SLF001 - the documented way
        except ValueError:  # C++ alone, on a thread of its own
            frame = None
        marks = (state or self._recorder.threads.local.state).marks
        last, callers = marks[-1] if marks else _UNMARKED
        if frame is not None and frame.f_back is last:  # what _key returns, for most in a backward
            key: tuple[int, ...] = (callers, id(frame.f_code), frame.f_lasti)
        else:
            key = self._key(frame, marks)
        found = self._short.get(key)
        if found is None:
            found = self._short[key] = self._define(self._places(frame))
        return found

    def mark(self, depth: int, state: ThreadState) -> None:
        """Let walks end ``depth`` frames above this one: that frame stays until it is unmarked.

        What called it cannot change while it runs, so it is walked once, here.
        """
        frame = sys._getframe(depth + 1)  # noqa: SLF001
        key = (id(frame.f_code), *self._key(frame.f_back, state.marks))
        number = self._callers.get(key)
        if number is None:
            number = self._callers[key] = self._caller_count
            self._caller_count += 1
            for code, _, _ in self._places(frame):
                self._codes.setdefault(id(code), code)
        state.marks.append((frame, number))

    def _key(self, frame: FrameType | None, marks: list[tuple[FrameType, int]]) -> tuple[int, ...]:
        """Return a key for a stack: the innermost mark with what called it, and the frames below.

        A marked frame is one of ours, and calls from one place.
        """
        last, callers = marks[-1] if marks else _UNMARKED
        back = None if frame is None else frame.f_back
        up = None if back is None else back.f_back
        if frame and back and up and up.f_back is last:  # in a module's forward, for most
            return (
                callers, id(frame.f_code), frame.f_lasti,
                id(back.f_code), back.f_lasti, id(up.f_code), up.f_lasti,
            )  # fmt: skip
        key = [callers]
        while frame is not last and frame is not None:
            key.append(id(frame.f_code))
            key.append(frame.f_lasti)
            if not marks and id(frame) == self.outermost:
                break
            frame = frame.f_back
        return tuple(key)

    def _places(self, frame: FrameType | None) -> list[Place]:
        places: list[Place] = []
        while frame is not None:
            places.append((frame.f_code, frame.f_lasti, frame))
            if id(frame) == self.outermost:
                break
            frame = frame.f_back
        return places

    def forget(self) -> None:
        """Begin anew where code that is made while it runs has made too many stacks."""
        if len(self._ids) > MAX_STACKS:
            for table in (self._ids, self._short, self._callers, self._frames):
                table.clear()
            for text in (self._files, self._codes, self._read):
                text.clear()

    @property
    def living(self) -> AbstractSet[int]:
        """The numbers of the stacks that may be met again."""
        return set(self._ids.values())

    def of_traceback(self, traceback: TracebackType | None) -> int | None:
        """Return the number of the stack at which an exception was raised."""
        places: list[Place] = []
        while traceback is not None:
            places.append((traceback.tb_frame.f_code, traceback.tb_lasti, traceback))
            traceback = traceback.tb_next
        places.reverse()
        return self._define(places) if places else None

    def _define(self, places: list[Place]) -> int:
        key = tuple([part for code, offset, _ in places for part in (id(code), offset)])
        found = self._ids.get(key)
        if found is not None:
            return found
        if len(places) > MAX_FRAMES:  # deep recursion: keep both ends
            half = MAX_FRAMES // 2
            kept = places[:half] + places[-half:]
        else:
            kept = places
        frame_ids = tuple([self._frame(place) for place in kept])
        for code, _, _ in places:
            self._codes.setdefault(id(code), code)
        stack_id = self._ids[key] = self._count
        self._count += 1
        self._tell_stack(self._recorder.threads.local.state.number, stack_id, frame_ids)
        return stack_id

    def _frame(self, place: Place) -> int:
        code, offset, _ = place
        key = (id(code), offset)
        found = self._frames.get(key)
        if found is not None:
            return found
        self._codes.setdefault(id(code), code)
        lineno = _line_at(place)
        filename = code.co_filename.removesuffix(PASSED_BY)
        # A handler that other code's ops pass through is not the line that called them.
        library = is_library(filename) or code.co_name in _INTERCEPTORS
        text = "" if library else self._text(filename, lineno)
        frame_id = self._frames[key] = self._frame_count
        self._frame_count += 1
        function = getattr(code, "co_qualname", code.co_name)  # qualified from Python 3.11 on
        thread = self._recorder.threads.local.state.number
        self._tell_frame(thread, None, frame_id, filename, lineno, function, text, library)
        return frame_id

    def _text(self, filename: str, lineno: int) -> str:
        source = self._files.get(filename)
        if source is None:
            source = self._files[filename] = linecache.getlines(filename)
            cell = cell_number(filename)
            if cell is not None:
                self._recorder.emit(CellSeen, filename, cell)
        first = max(lineno - EXCERPT_LINES, 1)
        self._quote(filename, source, range(first, min(lineno + EXCERPT_LINES, len(source)) + 1))
        return source[lineno - 1].strip() if 0 < lineno <= len(source) else ""

    def _quote(self, filename: str, source: list[str], numbers: Iterable[int]) -> None:
        thread = self._recorder.threads.local.state.number
        for number in numbers:
            if (filename, number) not in self._read:
                self._read.add((filename, number))
                self._tell_line(thread, None, filename, number, source[number - 1].rstrip("\r\n"))
