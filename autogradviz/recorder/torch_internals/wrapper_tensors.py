"""Tensor classes of PyTorch that hold another tensor, and dispatch in Python.

Only these are read: an attribute of a user's class may run the user's code.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple

import torch

from autogradviz.events import NO_ID
from autogradviz.recorder.torch_internals.distributed import coordinates_in_mesh

_DTENSOR: Final = ("torch.distributed.tensor", "DTensor")
_INNER: Final = {
    _DTENSOR: "_local_tensor",
    ("torch.distributed._functional_collectives", "AsyncCollectiveTensor"): "elem",
}
"""The attribute that holds the other tensor, by module and class."""


@lru_cache(maxsize=256)
def inner_attribute(kind: type) -> str:
    """Return the attribute in which a class holds its tensor, "" if it is none of PyTorch's."""
    return _INNER.get((kind.__module__, kind.__qualname__), "")


def inner_tensor(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the tensor that another one holds: the local part of a ``DTensor``; None if none.

    If that holds another one in turn, the innermost is returned. A collective that still writes
    it is not waited for.
    """
    inner = None
    while attribute := inner_attribute(type(tensor)):
        found = getattr(tensor, attribute, None)
        if not isinstance(found, torch.Tensor):
            break
        inner = tensor = found
    return inner


def completed_inner_tensor(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the local part of a ``DTensor``; None if it is none, or a collective still writes it.

    Args:
        tensor: any tensor.
    """
    if not _is_dtensor(type(tensor)):
        return None
    local = getattr(tensor, "_local_tensor", None)
    return local if isinstance(local, torch.Tensor) else None


# --- layouts ------------------------------------------------------------------------------


class Layout(NamedTuple):
    """The placements of a ``DTensor`` on the ranks of a mesh."""

    placements: tuple[str, ...]
    mesh_names: tuple[str, ...]
    mesh_shape: tuple[int, ...]
    mesh_coordinates: tuple[int, ...]


NO_LAYOUT: Final = -1
_layouts: Final[list[Layout]] = []
_numbers: Final[dict[Layout, int]] = {}


def layout_number(tensor: Any) -> int:
    """Return the number of a ``DTensor``'s layout, NO_LAYOUT of any other tensor.

    There are few layouts in a program. The native engine keeps their numbers.
    """
    if not _is_dtensor(type(tensor)):
        return NO_LAYOUT
    spec = getattr(tensor, "_spec", None)
    if spec is None:
        return NO_LAYOUT
    mesh = spec.mesh
    layout = Layout(
        tuple([repr(placement) for placement in spec.placements]),
        tuple(mesh.mesh_dim_names or ()),
        tuple(mesh.shape),
        coordinates_in_mesh(mesh),
    )
    found = _numbers.get(layout)
    if found is None:
        _layouts.append(layout)
        found = _numbers.setdefault(layout, len(_layouts) - 1)
    return found


def layout_of(number: int) -> Layout:
    """Return the layout of a number."""
    return _layouts[number]


def _is_dtensor(kind: type) -> bool:
    return (kind.__module__, kind.__qualname__) == _DTENSOR


# --- tensors of PyTorch's own classes, and version counters ---------------------------------------


PLAIN_TENSORS: Final = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})
"""PyTorch's own classes: reading an attribute of such a tensor runs no Python code."""


def version_of(tensor: torch.Tensor) -> int:
    """Return a tensor's version counter, NO_ID if it has none (inference mode)."""
    try:
        return tensor._version
    except RuntimeError:
        return NO_ID


# --- detect backends that run operators later (XLA, PyTorch's lazy tensors) -----------------------
#
# Their tensors cannot be used under any dispatch mode: views and in-place writes raise, and the
# tensors that reach the mode have no storage, so that reading it ends the process.


NO_OPS_WITH_LAZY: Final = "operators are not recorded: a lazy backend fails under any dispatch mode"


def has_lazy_backend() -> bool:
    """Return whether this process has a lazy backend."""
    try:
        torch._C._lazy._get_default_device_type()
    except RuntimeError:
        return False
    return True
