"""Ids of saves; saves through hooks are recorded as they are packed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autogradviz.events import NO_ID, TensorSaved
from autogradviz.recorder.torch_internals.plain_tensors_and_versions import version_of
from autogradviz.recorder.torch_internals.private_api import get_sequence_nr

if TYPE_CHECKING:
    import torch

    from autogradviz.events import PackedBy
    from autogradviz.recorder.engine_interface import FunctionFacts, Region
    from autogradviz.recorder.python_engine.tensor_ids import TensorTable
    from autogradviz.recorder.session import Session


class SaveIds:
    """Assigns ids to saves. All saves through hooks are kept by ``SaveTable``, none here."""

    def __init__(self, session: Session, tensors: TensorTable, functions: FunctionFacts) -> None:
        self._session = session
        self._local = session.threads.local
        self._intern = tensors.intern
        self._functions = functions
        self._emit = session.emitter(TensorSaved)
        self.count = 0
        """The number of saves so far, which is the id of the next one."""

    def next_id(self) -> int:
        """Return the id of a new save."""
        saved_id = self.count
        self.count = saved_id + 1
        return saved_id

    def record_packing(
        self, tensor: torch.Tensor, packed_by: PackedBy, region: Region, position: int | None
    ) -> tuple[int, int | None, int]:
        """Record a save; return its id, the tensor's version and the node's sequence number."""
        sequence_nr = get_sequence_nr() - 1
        stack_id = self._functions.stack_of(sequence_nr)
        if stack_id is None:
            stack_id = self._session.stack_id()
        found = version_of(tensor)
        version = None if found == NO_ID else found
        if self._session.addresses is not None:
            stacks: Any = self._session.stacks
            line = stacks.user_lines.get(stack_id, "")
            note = self._session.addresses.packed
            state = self._local.state
            self._session.guarded("addresses", note, tensor, packed_by, state, line)
        saved_id = self.next_id()
        self._emit(
            self._local.state.number, stack_id, saved_id, None, sequence_nr, None,
            self._intern(tensor), version, packed_by, *region, position,
        )  # fmt: skip
        return saved_id, version, sequence_nr

    def take_released(self) -> tuple[int, ...]:
        """Return nothing: a node that dies releases its saves at once (``NodeSlots``)."""
        return ()

    def discard_dead(self, packed: Any) -> None:
        """Do nothing: no saves are kept here."""

    def release(self, tensor: torch.Tensor) -> None:
        """Do nothing: no tensors are referred to here."""

    def prune(self, first_saved_id: int) -> None:
        """Do nothing: no saves are kept here."""
