"""Calls of operators and collectives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from autogradviz.events.base import Event
from autogradviz.events.field_types import (
    ArgumentsId,
    CallId,
    ModuleId,
    NodeId,
    OpSeq,
    RecomputeId,
    RegionId,
    TensorId,
    ValueText,
    event,
)

Conversion: TypeAlias = Literal["from_local", "to_local", "redistribute", "distribute_tensor"]
"""The function that made a ``DTensor``, read its local part, or changed its placements."""

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
class PlacementsChanged(Event):
    """A tensor became a ``DTensor``, a ``DTensor`` a tensor, or its placements changed.

    ``full_tensor`` is a ``redistribute`` and a ``to_local``. Below ``no_grad``, ``to_local``
    returns the local part itself, and is not recorded.
    """

    conversion: Conversion
    tensor_id: TensorId  # before
    result_tensor_id: TensorId
    placements: tuple[str, ...]  # before, by mesh dimension; empty for a plain tensor
    result_placements: tuple[str, ...]
    gradient_placements: tuple[str, ...]  # those that backward takes for the gradient's
    has_given_placements: bool  # the program passed grad_placements
    mesh_shape: tuple[int, ...]
    mesh_ranks: tuple[int, ...]  # global ranks, the last dimension fastest
    mesh_coordinates: tuple[int, ...]  # of this rank; empty if it is not in the mesh
    sequence_nr: int | None  # of the node; None without one
    entry_sum: float | None  # of the local part before; None if unread or not finite
    norm: float | None


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class GradientPlacementsChanged(Event):
    """Backward reached a node of ``from_local``, ``to_local`` or ``redistribute``."""

    conversion: Conversion
    sequence_nr: int  # of the node, as in PlacementsChanged
    placements: tuple[str, ...]  # of the gradient that it received; empty for a plain tensor
    result_placements: tuple[str, ...]  # of the one that it passes on; empty for a plain tensor
    entry_sum: float | None  # of the local part that it received
    norm: float | None
    is_constant: bool  # all entries of that part are equal


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class WholeParameterSeen(Event):
    """``fully_shard`` has a leaf for the whole of a parameter, of which each rank keeps a part.

    Backward accumulates into this leaf. ``fully_shard`` adds the gradients of the ranks, and sets
    the ``.grad`` of the parameter to this rank's part.
    """

    tensor_id: TensorId  # the leaf
    sharded_tensor_id: TensorId  # the parameter, a ``DTensor``


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class ParametersUnsharded(Event):
    """``fully_shard`` has gathered the whole parameters of a module from all ranks."""

    module_id: ModuleId | None
    unsharded_parameters: tuple[str, ...]  # their names in the module that shards them
    unsharded_nbytes: int  # of the whole parameters
    region_id: RegionId | None  # innermost checkpoint region, in forward and recomputation
    recompute_id: RecomputeId | None


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class ParametersResharded(Event):
    """``fully_shard`` has freed the whole parameters of a module; each rank keeps its part."""

    module_id: ModuleId | None
    unsharded_nbytes: int  # of the whole parameters
    region_id: RegionId | None  # innermost checkpoint region, in forward and recomputation
    recompute_id: RecomputeId | None


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class RandomDrawn(Event):
    """An op drew from a random generator of PyTorch."""

    op: str  # "aten.bernoulli_.float"
    op_seq: OpSeq | None
    generator: str  # "default", or "given" for a generator passed by the caller
    device: str  # of the generator: "cpu", "cuda:0"
