"""Placements of ``DTensor``, and parameters that ``fully_shard`` gathers and shards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from autogradviz.events.base import Event
from autogradviz.events.field_types import (
    ModuleId,
    RecomputeId,
    RegionId,
    TensorId,
    event,
)

Conversion: TypeAlias = Literal["from_local", "to_local", "redistribute", "distribute_tensor"]
"""The function that made a ``DTensor``, read its local part, or changed its placements."""


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
