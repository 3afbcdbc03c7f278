"""Python stacks of the native engine: walked in C++, described here when events are fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autogradviz.recorder import python_stacks
from autogradviz.recorder.python_stacks import StackTable, line_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from collections.abc import Set as AbstractSet
    from types import CodeType, FrameType, TracebackType

    from autogradviz.event_log import Row
    from autogradviz.events import Event
    from autogradviz.recorder.thread_state import ThreadState, ThreadTable


class NativeStacks(StackTable):
    """Ids of Python stacks, assigned in C++."""

    def __init__(
        self,
        threads: ThreadTable,
        emitter: Callable[[type[Event]], Callable[..., int]],
        recording: Any,
        module: Any,
    ) -> None:
        super().__init__(threads, emitter)
        self._native = recording
        self.capture_outside: Callable[[], int] = recording.capture
        self._code_at: Callable[[int], CodeType] = module.code
        self._line_of: Callable[[CodeType, int], int | None] = module.line_of

    def capture(self, depth: int, state: ThreadState | None = None) -> int:  # noqa: ARG002
        """Return the id of the stack, without the recorder's innermost frames."""
        return self._native.capture()  # type: ignore[no-any-return]

    def of_frame(self, frame: FrameType) -> int:
        """Return the id of the stack of a frame, which may belong to another thread."""
        places = [(code, offset) for code, offset, _ in self._places(frame)]
        return self._native.intern_stack(places)  # type: ignore[no-any-return]

    def of_traceback(self, traceback: TracebackType | None) -> int | None:
        """Return the id of the stack at which an exception was raised."""
        places: list[tuple[CodeType, int]] = []
        while traceback is not None:
            places.append((traceback.tb_frame.f_code, traceback.tb_lasti))
            traceback = traceback.tb_next
        places.reverse()
        return self._native.intern_stack(places) if places else None

    def prune(self) -> None:
        """Forget all stacks if code that is generated at run time has made too many of them."""
        if len(self._native.live_stacks()) > python_stacks.MAX_STACKS:
            self._native.drop_stacks()
            self._files.clear()
            self._read.clear()

    @property
    def live_ids(self) -> AbstractSet[int]:
        """The ids of the stacks that may be captured again."""
        return self._native.live_stacks()  # type: ignore[no-any-return]

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
            described = self.describe_code(code, line_of(code, offset) if line is None else line)
            yield seq, time_ns, thread, None, frame_id, *described
