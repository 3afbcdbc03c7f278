"""The process groups and meshes of this process, as PyTorch knows them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from autogradviz.support.live_objects import live_objects

if TYPE_CHECKING:
    from collections.abc import Iterator


class Group(NamedTuple):
    """One process group that this process is in."""

    name: str
    description: str
    ranks: tuple[int, ...]  # global ones


def initialized_distributed() -> Any:
    """Return ``torch.distributed`` if the program has initialized it, else None."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def process_groups(distributed: Any) -> list[Group]:
    """Return all process groups that this process is in."""
    world = distributed.distributed_c10d._world
    return [
        Group(name, getattr(group, "group_desc", "") or "", tuple(world.pg_group_ranks[group]))
        for group, name in list(world.pg_names.items())
        if group in world.pg_group_ranks
    ]


def device_meshes() -> Iterator[Any]:
    """Yield the ``DeviceMesh`` objects in which this process has a place; PyTorch has no list."""
    module = sys.modules.get("torch.distributed.device_mesh")
    if module is not None:
        for found in live_objects([module.DeviceMesh]):
            if coordinates_in_mesh(found):
                yield found


def coordinates_in_mesh(mesh: Any) -> tuple[int, ...]:
    """Return the place of this process in a mesh, () if it has none.

    With ``LocalTensorMode`` one process plays all ranks: its coordinates are symbolic.
    """
    coordinates = tuple(mesh.get_coordinate() or ())
    return coordinates if all(type(each) is int for each in coordinates) else ()


def name_of_group(group: Any) -> str:
    """Return the name of a process group that is an argument of an op: a name, or an object."""
    if isinstance(group, str):
        return group
    distributed = sys.modules["torch.distributed"]
    if not isinstance(group, distributed.ProcessGroup):
        group = distributed.ProcessGroup.unbox(group)
    return str(group.group_name)


_COLLECTIVES: Final = (
    "_allgather_base", "_reduce_scatter_base", "all_gather_single", "all_gather_single_coalesced",
    "all_to_all_single", "allgather", "allgather_coalesced", "allgather_into_tensor_coalesced",
    "allreduce", "allreduce_coalesced", "alltoall", "alltoall_base", "barrier", "broadcast",
    "gather", "recv", "recv_anysource", "reduce", "reduce_scatter", "reduce_scatter_single",
    "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced", "scatter", "send",
)  # fmt: skip
"""The methods of ``ProcessGroup`` that return a ``Work``, in any supported version."""


def process_group_classes() -> tuple[Any, Any] | None:
    """Return ``ProcessGroup`` and ``Work``; None if PyTorch was built without them."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available():
        return None
    return distributed.ProcessGroup, distributed.Work


def collective_methods() -> list[str]:
    """Return the names of the methods of ``ProcessGroup`` that start a collective."""
    found = vars(sys.modules["torch.distributed"].ProcessGroup)
    return [name for name in _COLLECTIVES if name in found]
