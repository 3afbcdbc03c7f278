"""Tensor classes of PyTorch that hold another tensor, and dispatch in Python.

Only these are read: an attribute of a user's class may run the user's code.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import torch

_INNER: Final = {
    ("torch.distributed.tensor", "DTensor"): "_local_tensor",
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
