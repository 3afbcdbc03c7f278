"""Python stacks of the native engine: walked in C++, described here when events are fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autogradviz.recorder import engine_interface
from autogradviz.recorder.user_code_frames import line_of, places_of_frame, places_of_traceback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from collections.abc import Set as AbstractSet
    from types import FrameType, TracebackType

    from autogradviz.event_log import Row
    from autogradviz.recorder.native.extension_types import Extension, Recording
    from autogradviz.recorder.thread_state import ThreadState
    from autogradviz.recorder.user_code_frames import Place, SourceReader


class NativeStacks:
    """Ids of Python stacks."""

    def __init__(self, source: SourceReader, recording: Recording, extension: Extension) -> None:
        self._source = source
        self._recording = recording
        self.capture_outside: Callable[[], int] = recording.capture
        """Return the id of the stack at the innermost frame outside the recorder."""
        self._code_at = extension.code
        self._line_of = extension.line_of
        self.outermost = 0
        """``id`` of the frame that opened the recording: stacks end there."""

    def of_frame(self, frame: FrameType) -> int:
        """Return the id of the stack of a frame, which may belong to another thread."""
        return self._intern(places_of_frame(frame, self.outermost))

    def of_traceback(self, traceback: TracebackType | None) -> int | None:
        """Return the id of the stack at which an exception was raised."""
        places = places_of_traceback(traceback)
        return self._intern(places) if places else None

    def _intern(self, places: list[Place]) -> int:
        return self._recording.intern_stack([(code, offset) for code, offset, _ in places])

    def mark(self, depth: int, state: ThreadState) -> None:
        """Do nothing: C++ walks whole stacks."""

    def prune(self) -> None:
        """Forget all stacks if code that is generated at run time has made too many of them."""
        if len(self._recording.live_stacks()) > engine_interface.MAX_STACKS:
            self._recording.drop_stacks()
            self._source.forget()

    @property
    def live_ids(self) -> AbstractSet[int]:
        """The ids of the stacks that may be captured again."""
        return self._recording.live_stacks()

    def describe(self, values: list[Any]) -> Iterator[Row]:
        """Yield the rows of ``FrameSeen`` for frames that C++ numbered.

        Args:
            values: seven for each frame: event number, time, thread, stack, frame id, the address
                of the code object, the offset of the instruction.
        """
        each = iter(values)
        for seq, time_ns, thread, _, frame_id, address, offset in zip(*[each] * 7, strict=True):
            code = self._code_at(address)
            line = self._line_of(code, offset)
            described = self._source.describe(code, line_of(code, offset) if line is None else line)
            yield seq, time_ns, thread, None, frame_id, *described
