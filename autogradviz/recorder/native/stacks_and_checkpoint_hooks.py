"""Parts of the recorder that the native engine uses instead of those of the Python engine."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from autogradviz.recorder import engine_interface
from autogradviz.recorder.saved_tensors.hooks import WRAPPERS
from autogradviz.recorder.torch_internals.patches import patched
from autogradviz.recorder.user_code_frames import line_of, places_of_frame, places_of_traceback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from collections.abc import Set as AbstractSet
    from types import FrameType, TracebackType

    from autogradviz.event_log import Row
    from autogradviz.events import PackedBy
    from autogradviz.recorder.engine_interface import ContentHashes, Region
    from autogradviz.recorder.native.extension_types import Extension, Recording
    from autogradviz.recorder.saved_tensors.registry_of_saves import SaveTable
    from autogradviz.recorder.session import Session
    from autogradviz.recorder.source_around_lines import SourceReader
    from autogradviz.recorder.thread_state import ThreadState
    from autogradviz.recorder.user_code_frames import Place


# --- checkpoint hooks -----------------------------------------------------------------------------
#
# Records packs and unpacks of checkpoint's hooks in C++, which calls some of the methods here.


class CheckpointHooks:
    """Wraps the hooks of checkpoint by objects of C++."""

    def __init__(
        self,
        session: Session,
        extension: Extension,
        recording: Recording,
        saves: SaveTable,
        contents: ContentHashes,
    ) -> None:
        self._session = session
        self._saves = saves
        self._contents = contents
        WRAPPERS.add(extension.TracingHook)
        recording.set_tracer(self, saves.packed_objects)
        self._recording = session.ref(recording)
        self._wrap = recording.wrap_hooks

    def wrap(self, pack: Any, unpack: Any, packed_by: PackedBy, region: Region) -> tuple[Any, Any]:
        """Return wrappers around a pair of hooks that record what the hooks do."""
        return self._wrap(self._recording, pack, unpack, packed_by, *region)

    # --- what C++ calls ------------------------------------------------------------------------

    def attach(self) -> None:
        """Let C++ know this thread."""
        _ = self._session.threads.local.state

    def hash_of(self, tensor: torch.Tensor) -> int | None:
        """Return the fingerprint of a tensor, None if it has none."""
        return self._contents.hash_of(tensor)

    def discard_dead(self, packed: Any) -> None:
        """Forget saves in Python whose packed objects had the address of a new one."""
        self._saves.discard_dead(packed)

    def fail(self, error: Exception) -> None:
        """Record that recording a pack or an unpack failed."""
        self._session.fail("saved tensors", error)


# --- reads of ``tensor.data``, which PyTorch reports as an operator to dispatch modes only --------


@contextmanager
def observe_data_reads(session: Session, recording: Recording) -> Iterator[None]:
    """Record each read of ``tensor.data`` as a call of ``detach`` while the context is open."""
    with patched(torch.Tensor, data=_Data(session, recording)):
        yield


class _Data:
    """The attribute on a tensor; PyTorch's own when it is read from the class.

    ``__torch_function__`` receives what the class has.
    """

    def __init__(self, session: Session, recording: Recording) -> None:
        self._original: Any = torch.Tensor.data
        self._session = session
        self._record = recording.record_detach

    def __get__(self, tensor: torch.Tensor | None, owner: Any = None) -> Any:
        if tensor is None:
            return self._original
        result = self._original.__get__(tensor)
        if isinstance(result, torch.Tensor):
            self._session.guarded("ops", self._record, tensor, result)
        return result

    def __set__(self, tensor: torch.Tensor, value: Any) -> None:
        self._original.__set__(tensor, value)

    def __delete__(self, tensor: torch.Tensor) -> None:
        self._original.__delete__(tensor)  # which raises


# --- stacks ---------------------------------------------------------------------------------------
#
# Python stacks of the native engine: walked in C++, described here when events are fetched.


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
