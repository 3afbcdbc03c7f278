"""Read a tensor's node only if that runs no code.

The ``grad_fn`` of a view whose base was written in place is created when it is read: PyTorch runs
the view functions again, below which a dispatch mode can deadlock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def safe_grad_fn(tensor: torch.Tensor) -> Any:
    """Return a tensor's node, None if it has none or if reading it would run view functions."""
    return None if tensor._is_view() and tensor._version else tensor.grad_fn
