"""The tensors that are alive, and the bytes of allocators, as events."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from autogradviz.events import (
    AllocatorRead,
    MemoryHeld,
)
from autogradviz.recorder.backward.training_steps import live_optimizers, parameters_of
from autogradviz.recorder.torch_internals.graph_owners import gradient_of, live_tensors
from autogradviz.recorder.torch_internals.private_api import DisableTorchFunction
from autogradviz.recorder.torch_internals.unreadable_tensors import inner_tensors, is_fake
from autogradviz.support.locks_gc_and_stderr import collector_waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from autogradviz.events import HeldAs
    from autogradviz.recorder.engine_interface import TensorIds
    from autogradviz.recorder.leaf_tensors_and_versions import LeafTable
    from autogradviz.recorder.session import Session
from autogradviz.recorder.out_of_memory.read_allocation_error import requested_nbytes

# --- the kinds of live tensors: parameters, gradients, state of optimizers, and others ------------


_DEEPEST = 4  # containers in the state of an optimizer


class LiveTensors:
    """The tensors that Python objects hold, by what they are, and the live optimizers.

    It holds them: drop it before the program continues.
    """

    def __init__(self) -> None:
        self.optimizers = live_optimizers()
        self.tensors = tensors = live_tensors()
        parameters: list[torch.Tensor] = [
            each for each in tensors if isinstance(each, torch.nn.Parameter)
        ]
        for optimizer in self.optimizers:
            parameters += parameters_of(optimizer)
        states = chain.from_iterable(map(state_of, self.optimizers))
        self.by_kind: tuple[tuple[HeldAs, list[torch.Tensor]], ...] = (
            ("parameter", parameters),
            ("optimizer state", list(states)),
            ("other", tensors),
        )


def live_gradients() -> list[torch.Tensor]:
    """Return the gradients of all leaves; no other thread may write gradients meanwhile."""
    return gradients_of(live_tensors())


def gradients_of(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Return the gradients of those that are leaves; no other thread may write any meanwhile."""
    return [each for each in map(gradient_of, tensors) if each is not None]


def state_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Return the tensors in the state of an optimizer."""
    return list(_tensors_in(vars(optimizer).get("state"), _DEEPEST))


def _tensors_in(value: Any, depth: int) -> Iterator[torch.Tensor]:
    if issubclass(type(value), torch.Tensor):
        yield value
    elif depth and issubclass(type(value), dict):
        for each in list(dict.values(value)):
            yield from _tensors_in(each, depth - 1)
    elif depth and type(value) in {list, tuple}:
        for each in list(value):
            yield from _tensors_in(each, depth - 1)


# --- records what holds memory throughout a step (``record(memory=True)``) ------------------------
#
# The engine notes which storages were freed. What Python objects hold is read with the garbage
# collector's objects when the recording begins and ends; the gradients of known leaves after each
# backward, and the state of an optimizer after its step.


class LiveMemory:
    """Records the live tensors by what they are."""

    def __init__(
        self,
        session: Session,
        tensors: TensorIds,
        leaves: LeafTable,
        may_read_gradients: Callable[[], bool],
    ) -> None:
        """Prepare for a recording.

        Args:
            session: of the recording.
            tensors: the ids of tensors.
            leaves: the leaves that the recording has seen.
            may_read_gradients: returns whether no other thread may write gradients.
        """
        self._session = session
        self._tensors = tensors
        self._leaves = leaves
        self._may_read_gradients = may_read_gradients
        self._seen: dict[HeldAs, set[int]] = {}
        self._used: set[str] = set()  # devices whose allocator has given memory

    def read_allocators(self) -> None:
        """Record what the allocators of accelerators have given, and first what was freed."""
        if self._session.fake_mode is not None:
            return
        self._session.engine.emit_freed()
        for device, nbytes in requested_nbytes():
            if nbytes or device in self._used:
                self._used.add(device)
                self._session.emit(AllocatorRead, device, nbytes)

    def read_all(self) -> None:
        """Record all live tensors."""
        with DisableTorchFunction(), collector_waiting():
            live = LiveTensors()
            for held_as, tensors in live.by_kind:
                self._emit(held_as, tensors)
            if self._may_read_gradients():
                self._emit("gradient", gradients_of(live.tensors))
        self.read_allocators()

    def read_gradients(self) -> None:
        """Record the gradients of leaves; a backward has ended."""
        if self._may_read_gradients():
            with DisableTorchFunction(), collector_waiting():
                self._emit("gradient", gradients_of(self._leaves.live()))

    def lasting(self) -> set[int]:
        """Return the ids of storages that are parameters, gradients or state of optimizers."""
        kinds: tuple[HeldAs, ...] = ("parameter", "gradient", "optimizer state")
        return set().union(*(self._seen.get(each, ()) for each in kinds))

    def read_state(self, optimizer: torch.optim.Optimizer) -> None:
        """Record the state of an optimizer, which has stepped."""
        with DisableTorchFunction():
            self._emit("optimizer state", state_of(optimizer))
        self.read_allocators()

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
