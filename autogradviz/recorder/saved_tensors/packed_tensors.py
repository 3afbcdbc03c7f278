"""What is known of a save that went through hooks, and of the tensors in what its hook gave.

A hook that copies into memory of its own, a pinned staging buffer for instance, gives that
memory and not the tensor. PyTorch knows nothing of it, and nothing checks whether it is written
before it is unpacked.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from autogradviz.events import NO_ID, PackedWritten
from autogradviz.recorder.checkpoint.value_repr import CONTAINERS
from autogradviz.recorder.ids.tensors import version_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.recorder.recorder import Recorder

MAX_PARTS: Final = 8
"""Items of a tuple, a list or a dictionary that are looked at."""


class Kept(NamedTuple):
    """One tensor in what a hook gave, as it was then."""

    reference: weakref.ref[torch.Tensor]
    since_seq: int
    version: int
    content: int | None


class Packed:
    """One save that went through hooks."""

    __slots__ = (
        "holder",
        "kept",
        "node_id",
        "original",
        "saved_hash",
        "saved_id",
        "sequence_nr",
        "stands_in",
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
        stands_in: bool,
    ) -> None:
        self.saved_id = saved_id
        self.stands_in = stands_in  # a recomputation's, for the forward's: its graph dies at once
        self.sequence_nr = sequence_nr  # of the node that saved, by the count at that time
        self.version = version
        self.original = original  # weak, or None
        self.saved_hash = saved_hash
        self.node_id: int | None = None
        self.unpacked = 0
        self.holder: weakref.ref[Any] | None = None  # what the hook returned
        self.kept: tuple[Kept, ...] = ()  # the tensors in that

    def let_go(self, tensor: torch.Tensor) -> None:
        """Forget that this is what was saved, what the hook returned or a part of that."""
        if self.original is not None and self.original() is tensor:
            self.original = None
        if self.holder is not None and self.holder() is tensor:
            self.holder = None
        self.kept = tuple(part for part in self.kept if part.reference() is not tensor)


def kept_in(recorder: Recorder, result: Any, original: torch.Tensor) -> tuple[Kept, ...]:
    """Return the tensors in what a hook gave that have other memory than what was saved."""
    return tuple(
        Kept(weakref.ref(tensor), recorder.event_count, version, recorder.hash_of(tensor))
        for tensor in _tensors(result)
        if (version := version_of(tensor)) != NO_ID and not _same_memory(tensor, original)
    )


def tell_written(recorder: Recorder, saved_id: int, kept: tuple[Kept, ...]) -> None:
    """Record which of them were written since."""
    for reference, since_seq, version, content in kept:
        tensor = reference()
        if tensor is None:
            continue
        seen = version_of(tensor)
        if seen not in {version, NO_ID}:
            recorder.emit(
                PackedWritten, saved_id, recorder.tensors.number(tensor), since_seq,
                version, seen, content, recorder.hash_of(tensor),
            )  # fmt: skip


def _tensors(result: Any) -> Iterator[torch.Tensor]:
    if type(result) is torch.Tensor:
        yield result
    elif type(result) in CONTAINERS:
        items = result.values() if type(result) is dict else result
        for item in list(items)[:MAX_PARTS]:
            if type(item) is torch.Tensor:
                yield item


def _same_memory(tensor: torch.Tensor, original: torch.Tensor) -> bool:
    return tensor.untyped_storage().data_ptr() == original.untyped_storage().data_ptr()
