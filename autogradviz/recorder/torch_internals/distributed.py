"""Private parts of ``torch.distributed``, none of which is imported before the program does it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard

from autogradviz.support.live_objects import live_objects

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.nn.parallel import DistributedDataParallel

    from autogradviz.events import Conversion

# --- Process groups and meshes --------------------------------------------------------------------


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


# --- Buckets in which DistributedDataParallel reduces gradients -----------------------------------


def is_data_parallel(module: Any) -> TypeGuard[DistributedDataParallel]:
    """Return whether a module is a ``DistributedDataParallel``."""
    loaded = sys.modules.get("torch.nn.parallel.distributed")
    return loaded is not None and isinstance(module, loaded.DistributedDataParallel)


def bucket_cap_nbytes(wrapper: DistributedDataParallel) -> int:
    """Return the bytes from which on a bucket is full."""
    return int(_statistics(wrapper).ints_map.get("bucket_cap_bytes", 0))


def rebuilt_buckets(wrapper: DistributedDataParallel) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """Return bytes and parameter names of each bucket.

    Returns () before DDP arranges them by arrival, and if parameters were frozen since the wrapper
    was created, so that their numbers are unknown.
    """
    texts = _statistics(wrapper).strs_map
    sizes = texts.get("rebuilt_bucket_sizes", "")
    indices = texts.get("rebuilt_per_bucket_param_indices", "")
    if not sizes or not indices:
        return ()
    ignored = set(wrapper.parameters_to_ignore)
    # Numbered in the order in which the reducer got them: each tensor once, by its first name.
    named = [
        (f"module.{name}", parameter)
        for name, parameter in wrapper.module.named_parameters()
        if parameter.requires_grad and name not in ignored
    ]
    found = [
        (int(nbytes), [named[int(index)] for index in bucket.split() if int(index) < len(named)])
        for nbytes, bucket in zip(sizes.split(","), indices.split(","), strict=True)
    ]
    if any(nbytes != sum(p.nbytes for _, p in bucket) for nbytes, bucket in found):
        return ()
    return tuple((nbytes, tuple(name for name, _ in bucket)) for nbytes, bucket in found)


def _statistics(wrapper: DistributedDataParallel) -> Any:
    """Return the statistics that PyTorch logs; reading them changes nothing."""
    return wrapper.logger._get_ddp_logging_data()  # type: ignore[union-attr]


# --- Groups of parameters that fully_shard gathers together ---------------------------------------

TRANSITIONS: Final = ("_to_unsharded", "_to_sharded", "_to_sharded_post_forward")
"""The methods that change whether a group is gathered."""

_MODULE: Final = "torch.distributed.fsdp._fully_shard._fsdp_param_group"


def parameter_group_class() -> Any:
    """Return the class of the groups; None if it is not imported, or lacks a method."""
    found = getattr(sys.modules.get(_MODULE), "FSDPParamGroup", None)
    return found if all(name in vars(found or object) for name in TRANSITIONS) else None


def is_unsharded(group: Any) -> bool:
    """Return whether the whole parameters of a group are in memory."""
    return bool(group.is_unsharded)


def modules_of(group: Any) -> tuple[Any, ...]:
    """Return the modules whose parameters are in a group."""
    return tuple(group.modules)


def parameters_of(group: Any) -> list[tuple[Any, Any]]:
    """Return each parameter of a gathered group: the part of this rank, and the whole."""
    return [(each.sharded_param, each.unsharded_param) for each in group.fsdp_params]


def whole_parameters(group: Any) -> tuple[int, tuple[str, ...]]:
    """Return the bytes and the names of the whole parameters of a group."""
    nbytes, names = 0, []
    for parameter in group.fsdp_params:
        whole = parameter.unsharded_param
        nbytes += getattr(whole, "_local_tensor", whole).nbytes
        names.append(parameter._param_fqn or parameter._module_info.param_name)
    return nbytes, tuple(names)


# --- Functions of DTensor at which gradients get their placements ---------------------------------

# from_local, to_local and redistribute each apply an autograd.Function.

_API: Final = "torch.distributed.tensor._api"
_CLASSES: Final[tuple[tuple[str, Conversion], ...]] = (
    ("_FromTorchTensor", "from_local"),
    ("_ToTorchTensor", "to_local"),
    ("Redistribute", "redistribute"),
)


def conversion_functions() -> list[tuple[Any, Conversion]]:
    """Return the Functions, none if the program has not imported ``torch.distributed.tensor``."""
    module = sys.modules.get(_API)
    found = [(getattr(module, name, None), conversion) for name, conversion in _CLASSES]
    return [(each, name) for each, name in found if each is not None]


def distribute_function() -> Any:
    """Return ``distribute_tensor``, None if the program has not imported it."""
    return getattr(sys.modules.get(_API), "distribute_tensor", None)


def ranks_of_mesh(tensor: Any) -> tuple[int, ...]:
    """Return the global ranks of the mesh of a ``DTensor``, the last dimension fastest."""
    return tuple(tensor._spec.mesh.mesh.flatten().tolist())


def declared_gradient(ctx: Any, conversion: Conversion) -> tuple[tuple[str, ...], bool]:
    """Return the placements that backward gives a gradient, and whether the program gave them.

    Args:
        ctx: the node, after its forward.
        conversion: the kind of node.
    """
    if conversion == "redistribute":
        return _texts(ctx.current_spec.placements), False
    given = getattr(ctx, "grad_placements", None)
    if given is not None:
        return _texts(given), True
    held = ctx.dtensor_spec.placements if conversion == "to_local" else ctx.forward_input_placements
    # The default: gradients of a ``Partial`` tensor are those of its reduced value.
    return tuple("Replicate()" if each.is_partial() else repr(each) for each in held), False


def _texts(placements: Any) -> tuple[str, ...]:
    return tuple(repr(each) for each in placements)


# --- Backwards with which pipeline parallelism infers shapes --------------------------------------

# A stage runs its module once on uninitialized memory and differentiates the result, so that it
# knows the shapes that it will exchange with other stages. The values of such a backward mean
# nothing.

_STAGE = "torch.distributed.pipelining.stage"


def infers_shapes() -> bool:
    """Return whether the calling function runs while a pipeline stage infers shapes."""
    stage = sys.modules.get(_STAGE)
    if stage is None:
        return False
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_filename == stage.__file__ and "inference" in frame.f_code.co_name:
            return True
    return False
