"""Definitions that other events refer to: frames, stacks, tensors, modules, parameters."""

from __future__ import annotations

from dataclasses import dataclass

from autogradviz.events.base import Event
from autogradviz.events.field_types import (
    FilePath,
    FrameId,
    ModuleId,
    SourceText,
    StorageId,
    TensorId,
    event,
)


@event(defines=("frame_id",))
@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSeen(Event):
    """A line of a function appeared in a stack for the first time."""

    frame_id: FrameId
    filename: FilePath
    lineno: int  # from 1
    function: str  # qualified name, "Attention.forward"
    text: SourceText  # source line without indentation, "" where there is no source
    library: bool  # part of torch, the standard library or autogradviz


@event(defines=("stack_id",))
@dataclass(frozen=True, slots=True, kw_only=True)
class StackSeen(Event):
    """A Python stack occurred for the first time; ``stack_id`` is the id that is defined."""

    frame_ids: tuple[FrameId, ...]  # innermost first


@event(defines=("filename", "lineno"), private=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLineRead(Event):
    """A line of a user's source file, near a frame, was read."""

    filename: FilePath
    lineno: int  # from 1
    text: SourceText  # with indentation


@event(defines=("filename",))
@dataclass(frozen=True, slots=True, kw_only=True)
class CellSeen(Event):
    """A file name was identified as a notebook cell, compiled by IPython."""

    filename: FilePath
    cell: int  # execution count, 3 in "In [3]"


@event(defines=("tensor_id",))
@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSeen(Event):
    """A tensor was seen for the first time: a region of a storage with a shape and dtype.

    Tensor objects that view the same memory with the same shape and dtype share one id.
    """

    tensor_id: TensorId
    storage_id: StorageId | None  # None for sparse tensors, and where storages are not followed
    shape: tuple[int, ...]
    dtype: str  # "float32"
    device: str  # "cpu", "cuda:0"
    nbytes: int  # of the elements of this tensor
    storage_nbytes: int  # of the whole storage, 0 without a storage


@event(defines=("tensor_id",))
@dataclass(frozen=True, slots=True, kw_only=True)
class StridesSeen(Event):
    """A tensor that no recorded op returned is not contiguous, or begins inside its storage."""

    tensor_id: TensorId
    strides: tuple[int, ...]  # in elements
    storage_offset: int  # in elements


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class StorageAddressSeen(Event):
    """The memory of a saved tensor, a parameter or a gradient has this address."""

    tensor_id: TensorId  # of a gradient, that of its parameter
    role: str  # "saved", "parameter" or "gradient"
    address: int  # of the first byte of the storage
    wall_ns: int  # wall clock, nanoseconds since 1970; a snapshot of the allocator has the same


@event(defines=("tensor_id",))
@dataclass(frozen=True, slots=True, kw_only=True)
class DistributedTensorSeen(Event):
    """A tensor is a ``DTensor``; it is emitted after the ``TensorSeen`` with its global shape."""

    tensor_id: TensorId
    local_tensor_id: TensorId  # the part that this rank holds, with the local shape
    placements: tuple[str, ...]  # for each mesh dimension: "Shard(dim=0)", "Replicate()"
    mesh_names: tuple[str, ...]  # of the dimensions: "dp", "tp"; empty if they have none
    mesh_shape: tuple[int, ...]
    mesh_coordinates: tuple[int, ...]  # of this rank; empty if it is not in the mesh


@event(defines=("module_id",))
@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSeen(Event):
    """An ``nn.Module`` was seen for the first time."""

    module_id: ModuleId
    parent_module_id: ModuleId | None
    module_name: str  # qualified from its root, "h.0.attn"; "" for the root itself
    type_name: str  # "CausalSelfAttention"


@event(defines=("module_id",))
@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSeen(Event):
    """A parameter or buffer was found under a name; a shared one has one event for each name."""

    tensor_id: TensorId
    module_id: ModuleId
    parameter_name: str  # qualified, "h.0.attn.c_attn.weight"
    buffer: bool
    requires_grad: bool
