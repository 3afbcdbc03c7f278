"""Allocations of memory that failed, and the optimizers that were alive then."""

from __future__ import annotations

from dataclasses import dataclass

from autogradviz.events.base import Event
from autogradviz.events.field_types import (
    EventSeq,
    OpSeq,
    TensorId,
    event,
)


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
