"""The source around the lines of the user's frames, as recordings hold it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.events import CellSeen, SourceLineRead
from autogradviz.recorder.callable_names import qualified_name
from autogradviz.recorder.torch_internals.hide_frames_from_warnings import source_file
from autogradviz.support.source_lines_and_libraries import source_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import CodeType

    from autogradviz.events import Event
    from autogradviz.recorder.thread_state import ThreadTable
from autogradviz.recorder.user_code_frames import (
    EXCERPT_LINES,
    cell_number,
    is_generated,
    is_user_code,
)


class SourceReader:
    """Describes frames, and records the source around the user's lines once."""

    def __init__(
        self, threads: ThreadTable, emitter: Callable[[type[Event]], Callable[..., int]]
    ) -> None:
        self._local = threads.local
        self._emit_line = emitter(SourceLineRead)
        self._emit_cell = emitter(CellSeen)
        self._read: set[tuple[str, int]] = set()
        self._files: dict[str, list[str]] = {}

    def forget(self) -> None:
        """Read every file again: the stacks were forgotten."""
        self._files.clear()
        self._read.clear()

    def describe(self, code: CodeType, lineno: int) -> tuple[str, int, str, str, bool]:
        """Return the fields of ``FrameSeen`` for a line of a function, from the file name on."""
        filename = source_file(code)
        library = not is_user_code(code)
        quoted = not library or is_generated(filename)  # its text names the op
        text = self._text(filename, lineno) if quoted else ""
        function = qualified_name(code, self._files.get(filename, ()))
        return filename, lineno, function, text, library

    def read(self, filename: str, lineno: int) -> None:
        """Record the source around a line that is in no stack, if it is not recorded yet."""
        if (filename, lineno) not in self._read:
            self._text(filename, lineno)

    def _text(self, filename: str, lineno: int) -> str:
        source = self._files.get(filename)
        if source is None:
            source = self._files[filename] = source_lines(filename)
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
