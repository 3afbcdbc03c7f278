"""Records what held memory when an allocation failed.

NOTE [ When an allocation fails ]
The Python engine has the exception when the op raises, also in backward and on the threads of a
device. The native engine notes the live storages at each op that raises (NOTE [ Memory at a
failure ] in ``native/recording_state.h``), and Python says later that it was for lack of memory:
``torch.OutOfMemoryError`` is a class in Python, so its ``__init__`` tells when an exception is
made, before any ``except`` of the program. That of the CPU is a plain ``RuntimeError``; it is seen
where it leaves a backward, a module, or the block.

Nothing here runs an op or allocates on a device. Live tensors and optimizers are found with the
garbage collector's objects, which takes some milliseconds; in a recording with many failures, the
first ones and that which leaves the block are read.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.events import (
    MemoryHeld,
    OptimizerAlive,
    OutOfMemory,
    OutOfMemoryLeft,
)
from autogradviz.recorder.backward.training_steps import parameters_of
from autogradviz.recorder.out_of_memory.live_memory import LiveTensors, live_gradients, state_of
from autogradviz.recorder.out_of_memory.read_allocation_error import (
    is_out_of_memory,
    out_of_memory_in,
    read_failure,
)
from autogradviz.recorder.session import Session
from autogradviz.recorder.torch_internals.patches import patched
from autogradviz.recorder.torch_internals.private_api import DisableTorchFunction
from autogradviz.support.locks_gc_and_stderr import collector_waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType

    from autogradviz.events import HeldAs
    from autogradviz.recorder.engine_interface import TensorIds
    from autogradviz.recorder.module_names_and_calls import ModuleTable


_MOST: Final = 8  # failures of a recording whose live tensors are read


class AllocationFailures:
    """Records the allocations that failed."""

    def __init__(
        self,
        session: Session,
        tensors: TensorIds,
        modules: ModuleTable,
        walk_graph: Callable[[], object],
        may_read_gradients: Callable[[], bool],
    ) -> None:
        """Prepare for a recording.

        Args:
            session: of the recording.
            tensors: the ids of tensors.
            modules: the known modules.
            walk_graph: records the saved tensors of the graph that no backward has entered yet.
            may_read_gradients: returns whether no other thread may write gradients.
        """
        self._session = session
        self._tensors = tensors
        self._modules = modules
        self._walk_graph = walk_graph
        self._may_read_gradients = may_read_gradients
        self._gradients_due = False
        self._count = 0
        self._last: tuple[int, str] | None = None  # the last exception: its address and message
        self._last_seq = 0  # its event
        self._last_op: int | None = None
        self.on_held: Callable[[int], None] | None = None
        """Called with the event of a failure, once what keeps memory alive can be read."""
        session.on_failed_op = self._op_failed

    def _op_failed(self, error: BaseException, op_seq: int, stack_id: int | None) -> None:
        """Record an allocation that failed in an op, as the Python engine sees it."""
        if is_out_of_memory(error):
            self._record(error, op_seq, stack_id, self._session.engine.live_storages())

    def raised(self, error: BaseException) -> None:
        """Record a failed allocation if an exception says so, unless it is recorded."""
        if not is_out_of_memory(error):
            return
        if self._is_known(error):
            self._emit_gradients()
            return
        engine = self._session.engine
        op_seq, alive = engine.failed_op() or (None, engine.live_storages())
        if op_seq is not None and op_seq == self._last_op:
            return
        self._record(error, op_seq, self._session.stack_id(), alive)

    def left(self, error: BaseException) -> str:
        """Record that a failed allocation has ended the block, if it has.

        Returns:
            The device, "" if nothing of the kind has happened.
        """
        found = out_of_memory_in(error)
        if found is None:
            return ""
        if not self._is_known(found):
            stack_id = self._session.stacks.of_traceback(found.__traceback__)
            engine = self._session.engine
            op_seq, alive = engine.failed_op() or (None, engine.live_storages())
            if op_seq is None or op_seq != self._last_op:
                self._record(found, op_seq, stack_id, alive, always=True)
        self._emit_gradients()
        self._session.emit(OutOfMemoryLeft, self._last_seq)
        return read_failure(found).device

    def _is_known(self, error: BaseException) -> bool:
        return (id(error), str(error)) == self._last

    def _record(
        self,
        error: BaseException,
        op_seq: int | None,
        stack_id: int | None,
        alive: list[int],
        *,
        always: bool = False,
    ) -> None:
        session, kind = self._session, type(error)
        module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        failure = read_failure(error)
        self._last, self._last_op = (id(error), str(error)), op_seq
        self._count += 1
        self._walk_graph()
        self._last_seq = session.event_count
        session.emit(
            OutOfMemory, f"{module}{kind.__qualname__}", *failure, op_seq,
            self._modules.is_training(), stack_id=stack_id,
        )  # fmt: skip
        if self._count <= _MOST or always:
            with DisableTorchFunction(), collector_waiting():
                self._emit_held(alive)
            self._gradients_due = True
            self._emit_gradients()

    def _emit_held(self, alive: list[int]) -> None:
        """Record the live tensors, one for each storage, by what they are."""
        live = LiveTensors()
        for held_as, tensors in live.by_kind:
            self._emit_kind(held_as, tensors, alive if held_as == "other" else ())
        for optimizer in live.optimizers:
            ids = tuple(map(self._tensors.intern, parameters_of(optimizer)))
            nbytes = sum(each.nbytes for each in state_of(optimizer))
            name = type(optimizer).__name__
            self._session.emit(OptimizerAlive, self._last_seq, name, ids, nbytes)

    def _emit_gradients(self) -> None:
        """Record the live gradients, as soon as no other thread may write any."""
        if self._gradients_due and self._may_read_gradients():
            self._gradients_due = False
            with DisableTorchFunction():
                self._emit_kind("gradient", live_gradients(), ())
            if self.on_held is not None:
                self._session.guarded("owners", self.on_held, self._last_seq)

    def _emit_kind(
        self, held_as: HeldAs, tensors: Iterable[torch.Tensor], more: Iterable[int]
    ) -> None:
        storage_id = self._tensors.storage_id
        ids = chain(map(self._tensors.intern, tensors), more)
        by_storage = {storage_id(each): each for each in ids}
        by_storage.pop(None, None)
        self._session.emit(MemoryHeld, self._last_seq, held_as, tuple(by_storage.values()))


def _is_called_by_recorder(frame: FrameType | None) -> bool:
    """Return whether a guarded function of the recorder is running."""
    guards = {Session.guarded.__code__, Session.always_guarded.__code__}
    while frame is not None:
        if frame.f_code in guards:
            return True
        frame = frame.f_back
    return False


@contextmanager
def observe_allocation_failures(session: Session, failures: AllocationFailures) -> Iterator[None]:
    """Record each ``torch.OutOfMemoryError`` that is made while the context is open."""
    if session.with_ops and not session.engine.notes_failed_ops:
        yield  # the ops themselves are seen
        return
    original = torch.OutOfMemoryError.__init__

    def __init__(self: BaseException, *args: Any) -> None:  # noqa: N807 - the method's name
        original(self, *args)
        if not _is_called_by_recorder(sys._getframe(1)):  # noqa: SLF001
            session.guarded("memory", failures.raised, self)

    with patched(torch.OutOfMemoryError, __init__=__init__):
        yield
