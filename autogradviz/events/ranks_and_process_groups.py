"""The place of a process in a run: rank, process groups, meshes, data parallel models."""

from __future__ import annotations

from dataclasses import dataclass

from autogradviz.events.base import Event
from autogradviz.events.field_types import (
    ValueText,
    event,
)


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class RankSeen(Event):
    """The recorded process is one rank of a distributed run."""

    rank: int  # from 0
    world_size: int
    local_rank: int | None  # on its host
    host: ValueText
    pid: int  # of the process
    run_name: str  # the same on all ranks of a run
    restart_count: int  # how often the launcher has restarted the run


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessGroupSeen(Event):
    """The process is in a process group of ``torch.distributed``."""

    group_name: str
    group_description: str  # "default_pg", "mesh_dp"
    group_ranks: tuple[int, ...]  # global ranks, in the order of the ranks in the group


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class MeshSeen(Event):
    """The process has a place in a ``DeviceMesh``."""

    mesh_names: tuple[str, ...]  # of the dimensions: "dp", "tp"; empty if they have none
    mesh_shape: tuple[int, ...]
    mesh_coordinates: tuple[int, ...]


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class DataParallelSeen(Event):
    """The program trains a module in ``DistributedDataParallel``."""

    module_name: str  # qualified name of the wrapper
    find_unused_parameters: bool
    static_graph: bool
    bucket_cap_nbytes: int


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class GradientBucketSeen(Event):
    """``DistributedDataParallel`` reduces the gradients of some parameters together.

    It arranges them in the order in which gradients arrive, after its second step at the earliest.
    """

    module_name: str  # qualified name of the wrapper
    bucket: int  # in the order of their reduction, from 0
    bucket_nbytes: int
    bucket_parameters: tuple[str, ...]  # names below the wrapper, "module.head.weight"
