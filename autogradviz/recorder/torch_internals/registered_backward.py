"""The Python function that computes the gradient of a node."""

from __future__ import annotations

from typing import Any


def backward_of(node: Any) -> Any:
    """Return the backward of a custom Function or ``register_autograd``; None for other nodes."""
    cls = getattr(type(node), "_forward_cls", None)
    if cls is None:
        return None
    if "backward" not in vars(cls) and "vjp" in vars(cls):
        return cls.vjp
    return _registered(cls.backward, 3) or cls.backward


def _registered(function: Any, depth: int) -> Any:
    """Return the backward given to ``register_autograd``, from the closure that holds it."""
    if not getattr(function, "__module__", "").startswith("torch._library"):
        return None
    for cell in getattr(function, "__closure__", None) or ():
        content = cell.cell_contents
        found = getattr(content, "_backward_fn", None)
        if found is None and depth and callable(content):
            found = _registered(content, depth - 1)
        if found is not None:
            return found
    return None
