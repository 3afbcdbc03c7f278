"""The functions of ``DTensor`` at which gradients get their placements.

``from_local``, ``to_local`` and ``redistribute`` each apply an ``autograd.Function``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from autogradviz.events import Conversion

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
