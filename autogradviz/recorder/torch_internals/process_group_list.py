"""The process groups and meshes of this process, as PyTorch knows them."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

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
    """Yield the ``DeviceMesh`` objects that contain this process; PyTorch does not list them."""
    module = sys.modules.get("torch.distributed.device_mesh")
    if module is not None:
        for found in gc.get_objects():
            if type(found) is module.DeviceMesh and found.get_coordinate() is not None:
                yield found


def name_of_group(group: Any) -> str:
    """Return the name of a process group that is an argument of an op: a name, or an object."""
    if isinstance(group, str):
        return group
    distributed = sys.modules["torch.distributed"]
    if not isinstance(group, distributed.ProcessGroup):
        group = distributed.ProcessGroup.unbox(group)
    return str(group.group_name)
