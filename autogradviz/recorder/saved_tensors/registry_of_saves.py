"""Saves: their registry, storages and packed objects."""

from __future__ import annotations

import weakref
from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from autogradviz.events import (
    NO_ID,
    PackedBy,
    PackedWritten,
    SlotSeen,
    TensorReleased,
    TensorSaved,
)
from autogradviz.recorder.torch_internals.wrapper_tensors import version_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.recorder.engine_interface import ContentHashes, Region, Saves, TensorIds
    from autogradviz.recorder.session import Session


# --- all saves for backward: their ids, and the saves behind packed objects -----------------------


_KEEP_TENSOR: Final = frozenset({"user", "allow_mutation", "offload"})
"""The kinds of pairs whose packed objects hold the tensor or a copy."""


class SaveTable:
    """Records saves, and finds the save of a packed object."""

    def __init__(
        self, session: Session, tensors: TensorIds, ids: Saves, fingerprints: ContentHashes
    ) -> None:
        self._session = session
        self._local = session.threads.local
        self._intern = tensors.intern
        self._ids = ids
        self._hash_of = fingerprints.hash_of
        self._emit_saved = session.emitter(TensorSaved)
        self._emit_released = session.emitter(TensorReleased)
        self._emit_slot = session.emitter(SlotSeen)
        self.packed_objects: dict[int, list[HookedSave]] = {}
        """The saves of packed objects, by address."""
        self._address_of: dict[int, int] = {}  # saved id → that address

    @property
    def count(self) -> int:
        """The number of saves so far, which is the id of the next one."""
        return self._ids.count

    def new(
        self,
        tensor: torch.Tensor | int | None,
        *,
        packed_by: PackedBy,
        node_id: int | None = None,
        sequence_nr: int | None = None,
        slot: str | None = None,
        version: int | None = None,
        region: Region = (None, None),
        position: int | None = None,
        stack_id: int | None = None,
    ) -> int:
        """Record one save of a tensor, given by itself or by its id; return the id of the save."""
        if isinstance(tensor, torch.Tensor):
            if self._session.addresses is not None:
                note = self._session.addresses.kept
                self._session.guarded("addresses", note, tensor, packed_by)
            tensor = self._intern(tensor)
        saved_id = self._ids.next_id()
        self._emit_saved(
            self._local.state.number, stack_id, saved_id, node_id, sequence_nr, slot,
            NO_ID if tensor is None else tensor, version, packed_by, *region, position,
        )  # fmt: skip
        return saved_id

    def packing(
        self,
        tensor: torch.Tensor,
        packed_by: PackedBy,
        region: Region,
        position: int | None,
    ) -> HookedSave:
        """Record a save that is about to be packed."""
        saved_id, version, sequence_nr = self._ids.record_packing(
            tensor, packed_by, region, position
        )
        # A checkpoint's holder has no reference to the tensor; other pairs keep it or a copy, and
        # PyTorch does not check their versions, so the version is read again at unpack.
        original = weakref.ref(tensor) if packed_by in _KEEP_TENSOR else None
        return HookedSave(
            saved_id, version, original, self._hash_of(tensor), sequence_nr,
            is_recomputed=packed_by == "recompute",
        )  # fmt: skip

    def packed(self, save: HookedSave, result: Any) -> None:
        """Remember the object that the pack hook returned for a save."""
        address = id(result)
        self._forget_released()
        self._ids.discard_dead(result)
        self.discard_dead(result)
        try:
            save.holder = weakref.ref(result)
        except TypeError:  # numbers, tuples
            save.holder = None
        self.packed_objects.setdefault(address, []).append(save)
        self._address_of[save.saved_id] = address

    def _forget_released(self) -> None:
        """Forget the packed objects whose nodes have released them."""
        for saved_id in self._ids.take_released():
            self.discard(saved_id)

    def discard_dead(self, result: Any) -> None:
        """Forget saves whose graph died unnoticed, so that the address was used again."""
        for save in tuple(self.packed_objects.get(id(result), ())):
            if save.holder is not None and save.holder() is not result:
                if not save.is_recomputed:
                    self._emit_released(self._local.state.number, None, save.saved_id)
                self.discard(save.saved_id)

    def find(self, result: Any, node_id: int | None) -> HookedSave | None:
        """Return the save that a hook packed as ``result``: of this node, the least unpacked."""
        self._forget_released()
        candidates = self.packed_objects.get(id(result), ())
        best = None
        for save in candidates:
            if node_id is not None and save.node_id not in {None, node_id}:
                continue
            if best is None or save.unpacked < best.unpacked:
                best = save
        return best

    def slot_found(
        self, result: Any, node_id: int, slot: str, sequence_nr: int | None
    ) -> HookedSave | None:
        """Assign a node and slot to a save that went through hooks, and return it.

        If a hook returned the same object for several nodes, their sequence numbers decide.
        """
        free = [save for save in self.packed_objects.get(id(result), ()) if save.node_id is None]
        if not free:
            return None
        save = next((save for save in free if save.sequence_nr == sequence_nr), free[0])
        save.node_id = node_id
        self._emit_slot(self._local.state.number, None, save.saved_id, node_id, slot)
        return save

    def read_hooked(
        self, content: Any, node_id: int, sequence_nr: int | None, label: str
    ) -> tuple[int, int | None]:
        """Record that a slot holds what a hook packed; return the save and its version."""
        save = self.slot_found(content, node_id, label, sequence_nr)
        if save is not None:
            return save.saved_id, save.version
        # Packed before the recording, or by hooks registered on this slot alone.
        known = content if isinstance(content, torch.Tensor) else None
        saved_id = self.new(
            known, packed_by="user", node_id=node_id, sequence_nr=sequence_nr, slot=label
        )
        return saved_id, None

    def release(self, tensor: torch.Tensor) -> None:
        """Drop the weak references to a tensor."""
        self._ids.release(tensor)
        for save in chain.from_iterable(self.packed_objects.copy().values()):
            save.release(tensor)

    def released(self, saved_id: int, thread: int) -> None:
        """Record that a slot released its tensor."""
        self._emit_released(thread, None, saved_id)
        self.discard(saved_id)

    def discard(self, saved_id: int) -> None:
        """Forget a save that went through hooks."""
        address = self._address_of.pop(saved_id, None)
        if address is not None:
            saves = self.packed_objects[address]
            saves[:] = [save for save in saves if save.saved_id != saved_id]
            if not saves:
                del self.packed_objects[address]

    def prune(self, first_saved_id: int) -> None:
        """Forget the saves through hooks with smaller ids."""
        self._forget_released()
        self._ids.prune(first_saved_id)
        for saved_id in [each for each in self._address_of if each < first_saved_id]:
            self.discard(saved_id)


# --- saves that went through hooks, and the tensors in the objects that pack hooks return ---------
#
# A hook that copies into memory of its own, a pinned staging buffer for instance, returns that
# memory and not the tensor. PyTorch does not check whether it is written before it is unpacked.


MAX_PARTS: Final = 8
"""Items of a tuple, a list or a dictionary that are searched for tensors."""

_CONTAINERS: Final = (list, tuple, deque, set, frozenset, dict)


class PackedTensor(NamedTuple):
    """One tensor in a packed object, with its version and content when it was packed."""

    reference: weakref.ref[torch.Tensor]
    since_seq: int
    version: int
    content: int | None  # its fingerprint


class HookedSave:
    """One save that went through hooks."""

    __slots__ = (
        "holder",
        "is_recomputed",
        "node_id",
        "original",
        "packed",
        "saved_hash",
        "saved_id",
        "sequence_nr",
        "storage",
        "unpacked",
        "version",
    )

    def __init__(
        self,
        saved_id: int,
        version: int | None,
        original: Any,
        saved_hash: int | None,
        sequence_nr: int,
        *,
        is_recomputed: bool,
    ) -> None:
        self.saved_id = saved_id
        self.is_recomputed = is_recomputed  # its graph dies at once: the forward's save remains
        self.sequence_nr = sequence_nr  # of the node that saved, by the counter at that time
        self.version = version
        self.original = original  # weak, or None
        self.saved_hash = saved_hash
        self.node_id: int | None = None
        self.unpacked = 0
        self.holder: weakref.ref[Any] | None = None  # the object that the hook returned
        self.packed: tuple[PackedTensor, ...] = ()  # the tensors in it
        self.storage: weakref.ref[torch.UntypedStorage] | None = None  # of the saved tensor

    def release(self, tensor: torch.Tensor) -> None:
        """Drop the weak references to a tensor."""
        if self.original is not None and self.original() is tensor:
            self.original = None
        if self.holder is not None and self.holder() is tensor:
            self.holder = None
        self.packed = tuple(part for part in self.packed if part.reference() is not tensor)


class PackedTensors:
    """Reads the tensors in packed objects."""

    def __init__(self, session: Session, tensors: TensorIds, fingerprints: ContentHashes) -> None:
        self._session = session
        self._intern = tensors.intern
        self._hash_of = fingerprints.hash_of

    def read(self, result: Any, original: torch.Tensor) -> tuple[PackedTensor, ...]:
        """Return the tensors in a hook's result whose memory differs from the saved tensor's."""
        return tuple(
            PackedTensor(
                weakref.ref(tensor), self._session.event_count, version, self._hash_of(tensor)
            )
            for tensor in _tensors(result)
            if (version := version_of(tensor)) != NO_ID and not _same_memory(tensor, original)
        )

    def emit_written(self, save: HookedSave) -> None:
        """Record the packed tensors of a save that were written since."""
        for reference, since_seq, version, content in save.packed:
            tensor = reference()
            if tensor is None:
                continue
            seen = version_of(tensor)
            if seen not in {version, NO_ID}:
                self._session.emit(
                    PackedWritten, save.saved_id, self._intern(tensor), since_seq, version, seen,
                    content, self._hash_of(tensor),
                )  # fmt: skip


def _tensors(result: Any) -> Iterator[torch.Tensor]:
    if type(result) is torch.Tensor:
        yield result
    elif type(result) in _CONTAINERS:
        items = result.values() if type(result) is dict else result
        for item in list(items)[:MAX_PARTS]:
            if type(item) is torch.Tensor:
                yield item


def _same_memory(tensor: torch.Tensor, original: torch.Tensor) -> bool:
    return tensor.untyped_storage().data_ptr() == original.untyped_storage().data_ptr()
