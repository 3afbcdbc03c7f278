"""The ops of compiled graphs that compute nothing: their result is a view of an input."""

from __future__ import annotations

from functools import cache
from typing import Final

VIEW_OPS: Final = frozenset(
    {
        *("alias", "as_strided", "detach", "diagonal", "expand", "getitem", "narrow", "permute"),
        *("reshape", "select", "slice", "split", "split_with_sizes", "squeeze", "t", "transpose"),
        *("unbind", "unfold", "unsqueeze", "view", "_unsafe_view"),
    }
)
"""Ops whose result is a view, or one of several results, without namespace and overload."""


@cache
def is_view(target: str) -> bool:
    """Return whether a target is such an op: "aten.permute.default", "_operator.getitem"."""
    parts = target.split(".")
    return parts[min(1, len(parts) - 1)] in VIEW_OPS
