"""Calls of operators and collectives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from autogradviz.events.base import Event
from autogradviz.events.field_types import (
    ArgumentsId,
    CallId,
    NodeId,
    OpSeq,
    RecomputeId,
    RegionId,
    TensorId,
    ValueText,
    event,
)

Phase: TypeAlias = Literal["forward", "backward", "recompute"]
"""When an op ran. A recomputation inside a backward is ``recompute``."""


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class OpCalled(Event):
    """An operator was called below autograd."""

    op: str  # "aten.addmm.default"
    phase: Phase
    inputs: tuple[TensorId, ...]  # in the order of the arguments
    input_versions: tuple[int, ...]  # before the op, NO_ID where unknown
    outputs: tuple[TensorId, ...]
    output_versions: tuple[int, ...]  # after the op, NO_ID where unknown
    written: tuple[TensorId, ...]  # tensors written in place
    input_hashes: tuple[int, ...]  # of the values before the op, empty without fingerprints
    output_hashes: tuple[int, ...]  # of the values after the op, NO_ID where unknown
    duration_ns: int
    sequence_nr: int | None  # of the autograd node created by the op on this thread
    node_id: NodeId | None  # the node whose backward called the op
    call_id: CallId | None  # innermost module call
    region_id: RegionId | None  # innermost checkpoint region, in forward and recomputation
    recompute_id: RecomputeId | None
    failed: bool  # the op raised
    arguments_id: ArgumentsId | None  # None where its arguments are not known


@event(defines=("arguments_id",))
@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentsSeen(Event):
    """An operator was called with these arguments for the first time.

    ``arguments`` is a JSON object, in the order of the operator's schema, without arguments that
    have their default value. Numbers, None and lists stand for themselves. Text begins with its
    kind: "$" is a tensor, which ``OpCalled.inputs`` has; "s:mean" is text; "torch.float32" a
    dtype, layout or memory format; "d:cpu" a device; "f:nan" a number that JSON does not have;
    "c:1.0,2.0" a complex number; "g:" a generator; "?:Type" a value that is not recorded. The
    names of arguments that are passed by keyword only begin with "*".
    """

    arguments_id: ArgumentsId
    arguments: ValueText


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCalled(Event):
    """A collective of ``torch.distributed``, or a send or receive, is about to run.

    The event precedes the ``OpCalled`` of the same op, so that a collective that never returns is
    in the trace.
    """

    op: str  # "c10d.allreduce_.default"
    group_name: str  # of its process group
    group_number: int | None  # among the group's, from 0; None for a send or receive
    tensor_ids: tuple[TensorId, ...]  # its tensor arguments
    is_async: bool | None  # the caller does not wait for it, None where unknown


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveWaited(Event):
    """The program has waited for a collective, or for a send or receive, with ``Work.wait()``.

    Those that are not asynchronous wait inside the call. Waits of C++ are not seen: those of
    ``DistributedDataParallel`` for its buckets, and waits of a device for another stream.
    """

    group_name: str  # of its process group
    group_number: int | None  # among the group's, from 0; None for a send or receive
    duration_ns: int  # of the wait, until the time of this event
    failed: bool  # the wait raised


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class RandomDrawn(Event):
    """An op drew from a random generator of PyTorch."""

    op: str  # "aten.bernoulli_.float"
    op_seq: OpSeq | None
    generator: str  # "default", or "given" for a generator passed by the caller
    device: str  # of the generator: "cpu", "cuda:0"
