"""Python stacks, interned: a distinct stack is described once and gets one id.

Walking frames is the most expensive step at every op. The walk therefore collects only the
addresses of code objects and the offsets of instructions; line numbers are computed when a stack is
first seen. It ends early where it can: at the frame of the innermost module call or backward, whose
callers were walked when it began.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from autogradviz.events import NO_ID, FrameSeen, StackSeen
from autogradviz.recorder import engine_interface
from autogradviz.recorder.torch_internals.private_api import current_graph_task_id
from autogradviz.recorder.user_code_frames import (
    RECORDER_FOLDER,
    is_user_code,
    line_at,
    places_of_frame,
    places_of_traceback,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet
    from types import CodeType, FrameType, TracebackType

    from autogradviz.recorder.backward.backward_calls import EngineCall
    from autogradviz.recorder.session import Session
    from autogradviz.recorder.thread_state import ThreadState
    from autogradviz.recorder.user_code_frames import Place

MAX_FRAMES: Final = 150

_UNMARKED: Final = (None, NO_ID)
"""In place of a mark when no frame is marked."""


class StackTable:
    """Assigns an id to every distinct Python stack and describes it once in the log."""

    def __init__(self, session: Session) -> None:
        self._local = session.threads.local
        self._source = session.source
        self._emit_stack = session.emitter(StackSeen)
        self._emit_frame = session.emitter(FrameSeen)
        # Marks shorten walks; without ops too few stacks are captured to pay for them.
        self._with_marks = session.with_stacks and session.with_ops
        self._ids: dict[tuple[int, ...], int] = {}
        self._short: dict[tuple[int, ...], int] = {}  # by the frames up to a mark
        self._callers: dict[tuple[int, ...], int] = {}  # the callers of marked frames
        self._frames: dict[tuple[int, int], int] = {}
        self.user_lines: dict[int, str] = {}
        """The innermost line of the user in each stack, "train.py:31", by id."""
        self._codes: dict[int, CodeType] = {}  # keeps the addresses unique that keys consist of
        self._count = 0
        self._frame_count = 0
        self._caller_count = 0
        self.outermost = 0
        """``id`` of the frame that opened the recording: stacks end there."""
        self.works_for: Callable[[ThreadState], EngineCall | None] = lambda _: None
        """Return the call of another thread for which a thread works, None if there is none."""

    def capture(self, depth: int, state: ThreadState | None = None) -> int:
        """Return the id of the stack ``depth`` frames above the caller."""
        try:
            frame = sys._getframe(depth + 1)  # noqa: SLF001 - the documented way
        except ValueError:  # a thread of C++ without Python frames
            frame = None
        state = state or self._local.state
        last, callers = below = state.marks[-1] if state.marks else self._below(state)
        if frame is not None and frame.f_back is last:  # as _key returns; most stacks in a backward
            key: tuple[int, ...] = (callers, id(frame.f_code), frame.f_lasti)
        else:
            key = self._key(frame, below)
        found = self._short.get(key)
        if found is None:
            found = self._short[key] = self._define(self._places(frame, state))
        return found

    def _below(self, state: ThreadState) -> tuple[FrameType | None, int]:
        """Return the end of walks on a thread without marks, and the id of what stands below it."""
        call = self.works_for(state) if current_graph_task_id() != NO_ID else None
        return _UNMARKED if call is None or call.callers is None else (None, call.callers[0])

    def _places(self, frame: FrameType | None, state: ThreadState) -> list[Place]:
        """Return the stack of a frame, and that of the call for which its thread works."""
        places = places_of_frame(frame, self.outermost)
        if current_graph_task_id() != NO_ID:
            call = self.works_for(state)
            if call is not None and call.callers is not None:
                places += call.callers[1]
        return places

    def callers(self, state: ThreadState) -> tuple[int, list[Place]]:
        """Return the stack at the innermost frame outside the recorder, and an id of it.

        Threads for which the calling one waits use it.
        """
        found = self._places(self._outside(state)[1], state)
        # Without the frames, which the caller's own would keep alive.
        places: list[Place] = [(code, offset, None) for code, offset, _ in found]
        parts = [part for code, offset, _ in places for part in (id(code), offset)]
        return self._callers_id((NO_ID, *parts), places), places

    def _callers_id(self, key: tuple[int, ...], places: list[Place]) -> int:
        found = self._callers.get(key)
        if found is None:
            found = self._callers[key] = self._caller_count
            self._caller_count += 1
            for code, _, _ in places:
                self._codes.setdefault(id(code), code)
        return found

    def capture_outside(self) -> int:
        """Return the id of the stack at the innermost frame outside the recorder.

        A marked frame, which is the recorder's, ends the search: C++ calls from it.
        """
        state = self._local.state
        return self.capture(self._outside(state)[0] - 1, state)

    def _outside(self, state: ThreadState) -> tuple[int, FrameType | None]:
        """Return depth and frame of the innermost frame outside the recorder, from the caller on.

        A marked frame, which is the recorder's, ends the search: C++ calls from it.
        """
        last, _ = state.marks[-1] if state.marks else _UNMARKED
        depth = 1
        frame: FrameType | None = sys._getframe(depth)  # noqa: SLF001
        while (
            frame is not None
            and frame is not last
            and frame.f_code.co_filename.startswith(RECORDER_FOLDER)
        ):
            depth, frame = depth + 1, frame.f_back
        return depth, frame

    def mark(self, depth: int, state: ThreadState) -> None:
        """Let walks end at the frame ``depth`` frames above the caller, until it is unmarked.

        Its callers cannot change while it runs, so they are walked once, here.
        """
        if not self._with_marks:
            return
        frame = sys._getframe(depth + 1)  # noqa: SLF001
        below = state.marks[-1] if state.marks else self._below(state)
        key = (id(frame.f_code), *self._key(frame.f_back, below))
        callers = self._callers.get(key)
        if callers is None:
            callers = self._callers_id(key, places_of_frame(frame, self.outermost))
        state.marks.append((frame, callers))

    def _key(self, frame: FrameType | None, below: tuple[FrameType | None, int]) -> tuple[int, ...]:
        """Return a key for a stack: the callers of the innermost mark, and the frames below it.

        The instruction of the marked frame is not part of the key: it calls from one place.
        """
        last, callers = below
        back = None if frame is None else frame.f_back
        if frame and back and back.f_back is last:  # most stacks in a module's forward
            return callers, id(frame.f_code), frame.f_lasti, id(back.f_code), back.f_lasti
        key = [callers]
        while frame is not last and frame is not None:
            key.append(id(frame.f_code))
            key.append(frame.f_lasti)
            if last is None and id(frame) == self.outermost:
                break
            frame = frame.f_back
        return tuple(key)

    def prune(self) -> None:
        """Forget all stacks if code that is generated at run time has made too many of them."""
        if len(self._ids) > engine_interface.MAX_STACKS:
            for table in (
                self._ids, self._short, self._callers, self._frames, self.user_lines,
            ):  # fmt: skip
                table.clear()
            self._codes.clear()
            self._source.forget()

    @property
    def live_ids(self) -> AbstractSet[int]:
        """The ids of the stacks that may be captured again."""
        return set(self._ids.values())

    def of_frame(self, frame: FrameType) -> int:
        """Return the id of the stack of a frame, which may belong to another thread."""
        return self._define(places_of_frame(frame, self.outermost))

    def of_traceback(self, traceback: TracebackType | None) -> int | None:
        """Return the id of the stack at which an exception was raised."""
        places = places_of_traceback(traceback)
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
        for place in places:
            if is_user_code(place[0]):
                name = place[0].co_filename.replace("\\", "/").rpartition("/")[2]
                self.user_lines[stack_id] = f"{name}:{line_at(place)}"
                break
        return stack_id

    def _frame(self, place: Place) -> int:
        code, offset, _ = place
        key = (id(code), offset)
        found = self._frames.get(key)
        if found is not None:
            return found
        self._codes.setdefault(id(code), code)
        described = self._source.describe(code, line_at(place))
        frame_id = self._frames[key] = self._frame_count
        self._frame_count += 1
        self._emit_frame(self._local.state.number, None, frame_id, *described)
        return frame_id
