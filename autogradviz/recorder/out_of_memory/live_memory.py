"""Records what holds memory throughout a step (``record(memory=True)``).

The engine notes which storages were freed. What Python objects hold is read with the garbage
collector's objects: everything when the recording begins, gradients after each backward, the state
of an optimizer after its step, and everything once more at the end.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from autogradviz.events import MemoryHeld
from autogradviz.recorder.out_of_memory.held_tensors import LiveTensors, live_gradients, state_of
from autogradviz.recorder.torch_internals.private_api import DisableTorchFunction
from autogradviz.recorder.torch_internals.unreadable_tensors import inner_tensors, is_fake
from autogradviz.support.pause_gc import collector_waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import torch

    from autogradviz.events import HeldAs
    from autogradviz.recorder.engine_interface import TensorIds
    from autogradviz.recorder.session import Session


class LiveMemory:
    """Records the live tensors by what they are."""

    def __init__(
        self, session: Session, tensors: TensorIds, may_read_gradients: Callable[[], bool]
    ) -> None:
        """Prepare for a recording.

        Args:
            session: of the recording.
            tensors: the ids of tensors.
            may_read_gradients: returns whether no other thread may write gradients.
        """
        self._session = session
        self._tensors = tensors
        self._may_read_gradients = may_read_gradients
        self._seen: dict[HeldAs, set[int]] = {}

    def read_all(self) -> None:
        """Record all live tensors."""
        with DisableTorchFunction(), collector_waiting():
            for held_as, tensors in LiveTensors().by_kind:
                self._emit(held_as, tensors)
        self.read_gradients()

    def read_gradients(self) -> None:
        """Record the gradients of leaves; a backward has ended."""
        if self._may_read_gradients():
            with DisableTorchFunction(), collector_waiting():
                self._emit("gradient", live_gradients())

    def read_state(self, optimizer: torch.optim.Optimizer) -> None:
        """Record the state of an optimizer, which has stepped."""
        with DisableTorchFunction():
            self._emit("optimizer state", state_of(optimizer))

    def finish(self) -> None:
        """Record all live tensors, and the last storages that were freed."""
        self.read_all()
        self._session.engine.emit_freed()

    def _emit(self, held_as: HeldAs, tensors: Iterable[torch.Tensor]) -> None:
        """Record the tensors that were not recorded as this before, one for each storage."""
        session, intern, storage_id = self._session, self._tensors.intern, self._tensors.storage_id
        known, mode = self._seen.setdefault(held_as, set()), session.fake_mode
        by_storage: dict[int | None, int] = {}
        for tensor in chain.from_iterable(map(inner_tensors, tensors)):
            if mode is not None and not is_fake(tensor, mode):
                continue
            tensor_id = intern(tensor)
            by_storage.setdefault(storage_id(tensor_id), tensor_id)
        by_storage.pop(None, None)
        fresh = [each for each in by_storage if each is not None and each not in known]
        if fresh:
            known.update(fresh)
            session.emit(MemoryHeld, None, held_as, tuple(by_storage[each] for each in fresh))
