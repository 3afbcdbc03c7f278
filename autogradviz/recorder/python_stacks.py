"""Python stacks, interned: a distinct stack is described once and gets one id.

Walking frames is the most expensive step at every op. The walk therefore collects only the
addresses of code objects and the offsets of instructions; line numbers are computed when a stack is
first seen. It ends early where it can: at the frame of the innermost module call or backward, whose
callers were walked when it began.
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

from autogradviz.events import NO_ID, CellSeen, FrameSeen, SourceLineRead, StackSeen
from autogradviz.recorder.qualified_names import qualified_name
from autogradviz.recorder.torch_internals.hide_frames_from_warnings import source_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from collections.abc import Set as AbstractSet
    from types import CodeType, FrameType

    from autogradviz.events import Event
    from autogradviz.recorder.thread_state import ThreadState, ThreadTable

Place: TypeAlias = "tuple[CodeType, int, FrameType | TracebackType]"
"""An instruction: code object, offset, and a frame or traceback that knows the line."""

MAX_FRAMES: Final = 150
MAX_STACKS: Final = 20_000
"""A long recording forgets its stacks when there are more than this."""

EXCERPT_LINES: Final = 3  # recorded before and after each user line

_UNMARKED: Final = (None, NO_ID)
"""In place of a mark when no frame is marked."""

_INTERCEPTORS: Final = frozenset({"__torch_function__", "__torch_dispatch__"})
_RECORDER: Final = str(Path(__file__).parent) + os.sep
_OWN: Final = str(Path(__file__).parents[1]) + os.sep
_TORCH: Final = str(Path(torch.__file__).parent) + os.sep
_DEMO: Final = _OWN + "demo" + os.sep
_INDUCTOR: Final = os.sep + "torchinductor_"  # its folder below that for temporary files
_SITE: Final = os.sep + "site-packages" + os.sep
_LIBRARY_ROOTS: Final = tuple(
    {
        _TORCH,
        sysconfig.get_path("stdlib") + os.sep,
        sysconfig.get_path("platstdlib") + os.sep,
        _OWN,
    }
)


def is_generated(filename: str) -> bool:
    """Return whether a compiler wrote the code of a file: torch.fx, or Inductor."""
    folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR", "")  # PyTorch sets it at the first use
    return (
        filename.startswith("<eval_with_key>")
        or _INDUCTOR in filename
        or (folder != "" and filename.startswith(folder + os.sep))
    )


def is_library(filename: str) -> bool:
    """Return whether a file belongs to torch, the standard library or autogradviz itself."""
    if filename.startswith("<frozen ") or is_generated(filename):
        return True
    if filename.startswith(_DEMO) or not filename.startswith(_LIBRARY_ROOTS):
        return False
    torch_or_own = filename.startswith((_OWN, _TORCH))
    # Other packages are installed below the standard library's folder; they count as user code.
    return torch_or_own or _SITE not in filename


def is_user_code(code: CodeType) -> bool:
    """Return whether a line of a function can be the one that called an operator."""
    # A handler that the ops of other code pass through is not the line that called them.
    return code.co_name not in _INTERCEPTORS and not is_library(source_file(code))


def _line_at(place: Place) -> int:
    """Return the line of an instruction, or of the nearest one before it that has a line."""
    code, offset, source = place
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


class StackTable:
    """Assigns an id to every distinct Python stack and describes it once in the log."""

    def __init__(
        self, threads: ThreadTable, emitter: Callable[[type[Event]], Callable[..., int]]
    ) -> None:
        self._local = threads.local
        self._emit_stack = emitter(StackSeen)
        self._emit_frame = emitter(FrameSeen)
        self._emit_line = emitter(SourceLineRead)
        self._emit_cell = emitter(CellSeen)
        self._ids: dict[tuple[int, ...], int] = {}
        self._short: dict[tuple[int, ...], int] = {}  # by the frames up to a mark
        self._callers: dict[tuple[int, ...], int] = {}  # the callers of marked frames
        self._frames: dict[tuple[int, int], int] = {}
        self._codes: dict[int, CodeType] = {}  # keeps the addresses unique that keys consist of
        self._read: set[tuple[str, int]] = set()
        self._files: dict[str, list[str]] = {}
        self._count = 0
        self._frame_count = 0
        self._caller_count = 0
        self.outermost = 0
        """``id`` of the frame that opened the recording: stacks end there."""

    def capture(self, depth: int, state: ThreadState | None = None) -> int:
        """Return the id of the stack ``depth`` frames above the caller."""
        try:
            frame = sys._getframe(depth + 1)  # noqa: SLF001 - the documented way
        except ValueError:  # a thread of C++ without Python frames
            frame = None
        marks = (state or self._local.state).marks
        last, callers = marks[-1] if marks else _UNMARKED
        if frame is not None and frame.f_back is last:  # as _key returns; most stacks in a backward
            key: tuple[int, ...] = (callers, id(frame.f_code), frame.f_lasti)
        else:
            key = self._key(frame, marks)
        found = self._short.get(key)
        if found is None:
            found = self._short[key] = self._define(self._places(frame))
        return found

    def capture_outside(self) -> int:
        """Return the id of the stack at the innermost frame outside the recorder.

        A marked frame, which is the recorder's, ends the search: C++ calls from it.
        """
        marks = self._local.state.marks
        last, _ = marks[-1] if marks else _UNMARKED
        depth = 1
        frame: FrameType | None = sys._getframe(depth)  # noqa: SLF001
        while (
            frame is not None
            and frame is not last
            and frame.f_code.co_filename.startswith(_RECORDER)
        ):
            depth, frame = depth + 1, frame.f_back
        return self.capture(depth)

    def mark(self, depth: int, state: ThreadState) -> None:
        """Let walks end at the frame ``depth`` frames above the caller, until it is unmarked.

        Its callers cannot change while it runs, so they are walked once, here.
        """
        frame = sys._getframe(depth + 1)  # noqa: SLF001
        key = (id(frame.f_code), *self._key(frame.f_back, state.marks))
        callers = self._callers.get(key)
        if callers is None:
            callers = self._callers[key] = self._caller_count
            self._caller_count += 1
            for code, _, _ in self._places(frame):
                self._codes.setdefault(id(code), code)
        state.marks.append((frame, callers))

    def _key(self, frame: FrameType | None, marks: list[tuple[FrameType, int]]) -> tuple[int, ...]:
        """Return a key for a stack: the callers of the innermost mark, and the frames below it.

        The instruction of the marked frame is not part of the key: it calls from one place.
        """
        last, callers = marks[-1] if marks else _UNMARKED
        back = None if frame is None else frame.f_back
        up = None if back is None else back.f_back
        if frame and back and up and up.f_back is last:  # most stacks in a module's forward
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

    def prune(self) -> None:
        """Forget all stacks if code that is generated at run time has made too many of them."""
        if len(self._ids) > MAX_STACKS:
            for table in (self._ids, self._short, self._callers, self._frames):
                table.clear()
            for text in (self._files, self._codes, self._read):
                text.clear()

    @property
    def live_ids(self) -> AbstractSet[int]:
        """The ids of the stacks that may be captured again."""
        return set(self._ids.values())

    def of_frame(self, frame: FrameType) -> int:
        """Return the id of the stack of a frame, which may belong to another thread."""
        return self._define(self._places(frame))

    def of_traceback(self, traceback: TracebackType | None) -> int | None:
        """Return the id of the stack at which an exception was raised."""
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
        self._emit_stack(self._local.state.number, stack_id, frame_ids)
        return stack_id

    def _frame(self, place: Place) -> int:
        code, offset, _ = place
        key = (id(code), offset)
        found = self._frames.get(key)
        if found is not None:
            return found
        self._codes.setdefault(id(code), code)
        described = self.describe_code(code, _line_at(place))
        frame_id = self._frames[key] = self._frame_count
        self._frame_count += 1
        self._emit_frame(self._local.state.number, None, frame_id, *described)
        return frame_id

    def describe_code(self, code: CodeType, lineno: int) -> tuple[str, int, str, str, bool]:
        """Return the fields of ``FrameSeen`` for a line of a function, from the file name on."""
        filename = source_file(code)
        library = not is_user_code(code)
        quoted = not library or is_generated(filename)  # its text names the op
        text = self._text(filename, lineno) if quoted else ""
        function = qualified_name(code, self._files.get(filename, ()))
        return filename, lineno, function, text, library

    def read_source(self, filename: str, lineno: int) -> None:
        """Record the source around a line that is in no stack, if it is not recorded yet."""
        if (filename, lineno) not in self._read:
            self._text(filename, lineno)

    def _text(self, filename: str, lineno: int) -> str:
        source = self._files.get(filename)
        if source is None:
            source = self._files[filename] = linecache.getlines(filename)
            cell = cell_number(filename)
            if cell is not None:
                self._emit_cell(self._local.state.number, None, filename, cell)
        first = max(lineno - EXCERPT_LINES, 1)
        self._quote(filename, source, range(first, min(lineno + EXCERPT_LINES, len(source)) + 1))
        return source[lineno - 1].strip() if 0 < lineno <= len(source) else ""

    def _quote(self, filename: str, source: list[str], numbers: Iterable[int]) -> None:
        thread = self._local.state.number
        for number in numbers:
            if (filename, number) not in self._read:
                self._read.add((filename, number))
                self._emit_line(thread, None, filename, number, source[number - 1].rstrip("\r\n"))
