"""State of tensors beside their values: leaves, storages, versions."""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from autogradviz.events import NO_ID, RequiresGradChanged, StorageResized, VersionBumped
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_frame
from autogradviz.recorder.torch_internals.patches import patched, patched_tensor_method
from autogradviz.recorder.torch_internals.private_api import (
    C,
    DisableTorchFunction,
    current,
    preserve_version_counter,
)
from autogradviz.recorder.torch_internals.wrapper_tensors import version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from autogradviz.recorder.engine_interface import TensorIds, VersionCounters
    from autogradviz.recorder.session import Session


# --- leaf tensors, and changes of their ``requires_grad`` -----------------------------------------
#
# A call of ``requires_grad_`` is recorded where it happens. An assignment to ``requires_grad`` is
# C++; it is noticed when the next backward starts.


class LeafTable:
    """The known leaves, weakly referenced."""

    def __init__(self, session: Session, tensors: TensorIds) -> None:
        self._session = session
        self._tensors = tensors
        self._leaves: dict[int, weakref.ref[torch.Tensor]] = {}
        self._requires_grad: dict[int, bool] = {}
        self.forget_listeners: list[Callable[[int], object]] = []
        """Called with the tensor id of each leaf that is forgotten."""
        self.in_modules: set[int] = set()
        """The leaves that are plain tensors in an attribute of a module, no parameters."""

    def add(self, tensor_id: int, leaf: torch.Tensor) -> None:
        """Add a leaf, unless it is known."""
        if tensor_id not in self._leaves:
            self._leaves[tensor_id] = weakref.ref(leaf)
            self._requires_grad[tensor_id] = leaf.requires_grad

    def get(self, tensor_id: int) -> torch.Tensor | None:
        """Return a leaf by its id, None if it is unknown or dead."""
        reference = self._leaves.get(tensor_id)
        return None if reference is None else reference()

    def live(self) -> list[torch.Tensor]:
        """Return the known leaves that are alive."""
        found = [reference() for reference in list(self._leaves.values())]  # other threads add
        return [each for each in found if each is not None]

    def release(self, leaf: torch.Tensor) -> None:
        """Drop the weak reference to a leaf."""
        for tensor_id in [key for key, ref in list(self._leaves.items()) if ref() is leaf]:
            self._forget(tensor_id)

    def _forget(self, tensor_id: int) -> None:
        """Forget a leaf; it is added again when it is seen."""
        del self._leaves[tensor_id], self._requires_grad[tensor_id]
        self.in_modules.discard(tensor_id)
        for listener in self.forget_listeners:
            listener(tensor_id)

    def requires_grad_called(self, leaf: torch.Tensor) -> None:
        """Record a change that ``requires_grad_`` made."""
        with DisableTorchFunction():
            if not leaf.is_leaf:
                return
            tensor_id = self._tensors.intern(leaf)
            known = self._requires_grad.get(tensor_id)
            self.add(tensor_id, leaf)
            if known != leaf.requires_grad:
                self._requires_grad[tensor_id] = leaf.requires_grad
                stack_id = self._session.stack_id()
                self._session.emit(
                    RequiresGradChanged, tensor_id, leaf.requires_grad, stack_id=stack_id
                )

    def find_assignments(self) -> None:
        """Record assignments to ``requires_grad`` of known leaves."""
        for tensor_id, reference in list(self._leaves.items()):  # other threads add
            leaf = reference()
            if leaf is None:
                continue
            requires_grad = leaf.requires_grad
            if requires_grad != self._requires_grad[tensor_id]:
                self._requires_grad[tensor_id] = requires_grad
                self._session.emit(RequiresGradChanged, tensor_id, requires_grad)

    def prune(self) -> None:
        """Remove dead leaves."""
        for tensor_id in [key for key, leaf in list(self._leaves.items()) if leaf() is None]:
            self._forget(tensor_id)

    @property
    def live_ids(self) -> AbstractSet[int]:
        """The tensor ids of the known leaves."""
        return self._leaves.keys()


@contextmanager
def observe_requires_grad(session: Session, leaves: LeafTable) -> Iterator[None]:
    """Record calls of ``requires_grad_`` while the context is open."""
    original = torch.Tensor.requires_grad_

    @skip_frame
    def requires_grad_(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        session.guarded("leaves", leaves.requires_grad_called, self)
        return result

    with patched_tensor_method("requires_grad_", requires_grad_):
        yield


# --- storages whose memory the program frees and allocates again, while tensors refer to them -----


@contextmanager
def observe_resizes(session: Session, tensors: TensorIds) -> Iterator[None]:
    """Record ``UntypedStorage.resize_`` while the context is open."""
    original = torch.UntypedStorage.resize_

    def record(storage: torch.UntypedStorage) -> None:
        storage_id = tensors.id_of_storage(storage)
        if storage_id is not None:
            nbytes = storage.nbytes()
            session.emit(StorageResized, storage_id, nbytes, stack_id=session.stack_id())

    @skip_frame
    def resize_(self: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        session.guarded("storages", record, self)
        return result

    with patched(torch.UntypedStorage, resize_=resize_):
        yield


# --- version changes without op -------------------------------------------------------------------
#
# Changes of version counters that no operator made: manual increments, and restored counters.
#
# Operators emit the writes that they make. An engine also emits when it finds a counter
# that is higher than any recorded write left it.


@contextmanager
def observe_restored_versions(
    session: Session, tensors: TensorIds, versions: VersionCounters
) -> Iterator[None]:
    """Record ``_unsafe_preserve_version_counter`` while the context is open."""
    original = preserve_version_counter.__exit__

    def record(restored: Sequence[torch.Tensor]) -> None:
        with DisableTorchFunction():
            for tensor in restored:
                version = version_of(tensor)
                if version != NO_ID:
                    versions.restored(tensors.intern(tensor), version)

    @skip_frame
    def leave(self: Any, *error: Any) -> None:
        original(self, *error)
        session.guarded("version", record, self.tensors)

    with patched(preserve_version_counter, __exit__=leave):
        yield


@contextmanager
def observe_increments(
    session: Session, tensors: TensorIds, versions: VersionCounters
) -> Iterator[None]:
    """Record ``torch.autograd.graph.increment_version`` while the context is open."""
    original = current("_C._increment_version")

    def record(incremented: list[torch.Tensor]) -> None:
        stack_id = session.stack_id()
        for tensor in incremented:
            after = version_of(tensor)
            if after == NO_ID:
                continue
            tensor_id = tensors.intern(tensor)
            versions.bumped(tensor_id, after)
            storage_id = tensors.storage_id(tensor_id)
            session.emit(
                VersionBumped, tensor_id, storage_id, after - 1, after, "increment_version", None,
                stack_id=stack_id,
            )  # fmt: skip

    @skip_frame
    def increment(given: Any) -> None:
        listed = list(given)
        original(listed)
        with DisableTorchFunction():
            session.guarded("increment_version", record, listed)

    with patched(C, _increment_version=increment):
        yield
