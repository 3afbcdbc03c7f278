"""Groups of parameters that ``torch.distributed.fsdp.fully_shard`` gathers together."""

from __future__ import annotations

import sys
from typing import Any, Final

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
