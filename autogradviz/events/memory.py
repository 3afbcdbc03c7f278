"""Allocations of memory that failed, and the tensors that held memory then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from autogradviz.events.base import Event
from autogradviz.events.field_types import (
    EventSeq,
    FilePath,
    OpSeq,
    SourceText,
    StorageId,
    TensorId,
    event,
)

HeldAs: TypeAlias = Literal["parameter", "gradient", "optimizer state", "other"]
"""The kind of a live tensor, as Python objects show it; saved tensors are among "other"."""


@event(in_every_module=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory(Event):
    """PyTorch could not allocate memory; ``stack_id`` is the line that needed it.

    The numbers are those of PyTorch's message, or of the allocator's statistics where these agree
    with the message, which is rounded. They are None where neither has them.
    """

    type_name: str  # of the exception: "torch.OutOfMemoryError"
    device: str  # "cuda:0"
    requested_nbytes: int | None  # the allocation that failed
    capacity_nbytes: int | None  # of the device; of the host, its memory or the process's limit
    allocated_nbytes: int | None  # by PyTorch, on this device
    free_nbytes: int | None
    op_seq: OpSeq | None  # the op that raised, None if no op did or ops are not recorded
    is_training: bool | None  # the outermost module that was called last is in training mode


@event(in_every_module=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHeld(Event):
    """These tensors were alive: one for each storage, on any device.

    They are read when an allocation fails. With ``record(memory=True)``, they are also read when
    the recording begins and ends; gradients after each backward, and the state of an optimizer
    after its step.
    """

    failure_seq: EventSeq | None  # the ``OutOfMemory``, None without one
    held_as: HeldAs
    tensor_ids: tuple[TensorId, ...]


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


@event(in_every_module=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerAlive(Event):
    """An optimizer was alive when an allocation failed, whether it had stepped or not."""

    failure_seq: EventSeq  # the ``OutOfMemory``
    optimizer_name: str  # "Adam"
    tensor_ids: tuple[TensorId, ...]  # the tensors that it updates
    state_nbytes: int  # of its state on any device; 0 before its first step


@event(in_every_module=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemoryLeft(Event):
    """The exception of an ``OutOfMemory`` left the block, itself or as the cause of another one."""

    failure_seq: EventSeq  # the ``OutOfMemory``


@event(in_every_module=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHoldersRead(Event):
    """The recorder looked for what keeps memory alive; ``stack_id`` is the line that ran.

    With ``record(memory=True)``: when the recording ends, and before a backward when more memory
    than ever has outlived earlier ones, the 1st, 3rd, 7th, 15th time and so on that it grows. It is
    also done when an allocation fails.
    """

    reading: int  # from 0
    failure_seq: EventSeq | None  # the ``OutOfMemory``, None without one
    held_nbytes: int  # of all live storages but those of parameters, gradients and optimizers
    is_complete: bool  # else time was over, and no holder is known


@event(in_every_module=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHolderFound(Event):
    """If nothing referred to this object any more, so much memory would be free."""

    reading: int  # the ``MemoryHoldersRead``
    owner_root: SourceText  # "global history of module __main__"
    owner_path: SourceText  # from the root to the object: "list of 4"
    type_name: str  # of the object: "list"
    entries: int | None  # of the object, if it is a container
    count: int  # objects alike, as the cycles that several steps leave
    also_root: SourceText  # another root that leads to the memory; "" if there is none
    filename: FilePath  # of the function or class that is last on the path; "" if it is unknown
    lineno: int  # of the function; 0 if it is unknown
    nbytes: int
    tensor_ids: tuple[TensorId, ...]  # one for each storage
