"""Storages that were freed or resized, and the bytes that an allocator had given."""

from __future__ import annotations

from dataclasses import dataclass

from autogradviz.events.base import Event
from autogradviz.events.field_types import (
    StorageId,
    event,
)


@event(in_every_module=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class StoragesFreed(Event):
    """Nothing referred to these storages any more (``record(memory=True)`` only).

    They were freed after the last operator, or while it ran.
    """

    storage_ids: tuple[StorageId, ...]


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class StorageResized(Event):
    """The program resized a storage: to 0 to free its memory, and back to allocate it again.

    ``fully_shard`` and ``FullyShardedDataParallel`` free parameters that they have gathered like
    this, although saved tensors refer to them.
    """

    storage_id: StorageId
    storage_nbytes: int  # from now on


@event(in_every_module=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorRead(Event):
    """The allocator of a device had given so many bytes (``record(memory=True)`` only).

    It is read when the recording begins and ends, before and after each backward, and after each
    step of an optimizer. ``StoragesFreed`` before it has all storages that are not alive any more.
    """

    device: str  # "cuda:0"
    requested_nbytes: int  # as requested; an allocator may round them up
