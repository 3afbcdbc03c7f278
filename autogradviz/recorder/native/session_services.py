"""The parts of a session that C++ shares: numbers of events and threads, and Python stacks."""

from __future__ import annotations

import inspect
from functools import cache, partial
from types import CodeType
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.recorder.event_writer import EventSequence
from autogradviz.recorder.native.graph_tables import NativeRunning
from autogradviz.recorder.native.stacks import NativeStacks
from autogradviz.recorder.native.walk_snapshot import take_snapshot
from autogradviz.recorder.thread_state import ThreadTable
from autogradviz.recorder.torch_internals.private_api import CloneArgBeforeMutateMode

_SUBCLASS_CODES: Final = tuple(
    kind.__new__.__code__ for kind in (torch.nn.Parameter, torch.nn.Buffer)
)
"""Functions that make an object of a subclass for a tensor."""

_NEVER: Final = 2**62

if TYPE_CHECKING:
    from collections.abc import Callable

    from autogradviz.events import Event
    from autogradviz.recorder.checkpoint.repeated_walk import TakeSnapshot
    from autogradviz.recorder.session import Session
    from autogradviz.recorder.thread_state import ThreadState

    CopyNumber = Callable[[torch.Tensor], tuple[torch.Tensor, float] | None]


class NativeSequence(EventSequence):
    """Numbers from C++, which also notices that many events were added."""

    __slots__ = ("_recording",)

    def __init__(self, recording: Any) -> None:
        self._recording = recording
        super().__init__(number=recording.next_seq)

    def set_due(self, seq: int) -> None:
        """Call ``on_due`` for each event from a number on, also for those that C++ emits."""
        super().set_due(seq)
        if seq < _NEVER:
            self._recording.set_due(seq, self._act)
        else:  # without a reference to this object
            self._recording.set_due(_NEVER, None)

    def _act(self, seq: int) -> None:
        """Call ``on_due``; C++ has recorded many events."""
        if seq >= self.due:
            self.on_due(seq)


class NativeServices:
    """Makes and opens the parts of a session that C++ shares."""

    def __init__(self, module: Any) -> None:
        """Prepare for one recording.

        Args:
            module: the C++ extension.
        """
        self._module = module
        self.ordinary_nbytes: Callable[[torch.Tensor], int] = module.ordinary_nbytes
        self.norm: Callable[[torch.Tensor], float | None] = module.norm
        self.copy_number: CopyNumber = module.copy_number
        self.hook_type: type = module.TracingHook
        self.take_snapshot: TakeSnapshot = partial(take_snapshot, module)
        self.recording: Any = module.Recording()
        """The recording in C++."""
        self.event_count: Callable[[], int] = self.recording.event_count
        self.enter_hook: Callable[[], Any] = self.recording.enter_hook
        self.leave_hook: Callable[[Any, int], None] = self.recording.leave_hook
        self.close: Callable[[], None] = self.recording.close

    def make_sequence(self) -> EventSequence:
        """Return a sequence whose numbers come from C++."""
        return NativeSequence(self.recording)

    def make_threads(self) -> ThreadTable:
        """Return a table of threads whose numbers come from C++."""
        return ThreadTable(self._attach)

    def make_stacks(
        self, threads: ThreadTable, emitter: Callable[[type[Event]], Callable[..., int]]
    ) -> NativeStacks:
        """Return a table of stacks whose ids come from C++."""
        return NativeStacks(threads, emitter, self.recording, self._module)

    def open(self, session: Session, outermost: int) -> None:
        """Open the recording in C++; this thread becomes number 0."""
        began_ns = session.sequence.began_ns
        self.recording.open(
            began_ns, session.with_ops, session.with_stacks, session.with_fingerprints,
            session.with_norms, outermost, _clone_code(), _SUBCLASS_CODES,
        )  # fmt: skip
        for state in session.threads:
            state.number = self._attach(state)

    def _attach(self, state: ThreadState) -> int:
        """Let C++ read the open calls, modules and regions of this thread; return its number.

        Before the recording is open there is only the thread that prepares it.
        """
        if not self.recording.is_open():
            return 0
        state.running = NativeRunning(self.recording)  # type: ignore[assignment]
        number: int = self.recording.attach(state.calls, state.modules, state.regions)
        self.recording.suspend(state.suspended)
        return number


@cache
def _clone_code() -> CodeType | None:
    """Return the function in which ``allow_mutation_on_saved_tensors`` clones a tensor."""
    handler = CloneArgBeforeMutateMode.__torch_dispatch__
    constants = inspect.unwrap(handler).__code__.co_consts
    inner = (each for each in constants if isinstance(each, CodeType))
    return next((code for code in inner if code.co_name == "maybe_clone"), None)
