"""Read a tensor's node, and whether it is a leaf, only if that runs no code.

The ``grad_fn`` of a view whose base was written in place is created when it or ``is_leaf`` is read:
PyTorch runs the view functions again, below which a dispatch mode can deadlock, or raises an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def safe_grad_fn(tensor: torch.Tensor) -> Any:
    """Return a tensor's node, None if it has none or if reading it would run view functions."""
    return None if tensor._is_view() and tensor._version else tensor.grad_fn


def name_of_node(tensor: torch.Tensor) -> tuple[str, int] | None:
    """Return the name and sequence number of the node that made a tensor, None without one."""
    node = safe_grad_fn(tensor)
    return None if node is None else (node.name(), node._sequence_nr())


def is_trainable_leaf(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a leaf that requires a gradient, False if reading it runs code."""
    if not tensor.requires_grad or (tensor._is_view() and tensor._version):
        return False
    return tensor.is_leaf
