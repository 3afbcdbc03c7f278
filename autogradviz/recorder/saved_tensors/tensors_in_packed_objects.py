"""Saves that went through hooks, and the tensors in the objects that pack hooks return.

A hook that copies into memory of its own, a pinned staging buffer for instance, returns that memory
and not the tensor. PyTorch does not check whether it is written before it is unpacked.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from autogradviz.events import NO_ID, PackedWritten
from autogradviz.recorder.torch_internals.plain_tensors_and_versions import version_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.recorder.engine_interface import ContentHashes, TensorIds
    from autogradviz.recorder.session import Session

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
