"""The attributes of modules that a walk over state enters."""

from __future__ import annotations

from typing import Final

import torch

TABLES: Final = ("_parameters", "_buffers", "_modules")

_INTERNALS: Final = frozenset(
    name for name in vars(torch.nn.Module()) if name[0] == "_" and not name.endswith("_hooks")
) | {"_compiled_call_impl"}
"""Attributes of ``nn.Module`` itself: tables that the walk enters one by one, and flags."""


def is_hook_table(name: str) -> bool:
    """Return whether an attribute of a module holds hooks."""
    return name not in _INTERNALS and name.endswith("_hooks")


def is_user_attribute(name: str) -> bool:
    """Return whether an attribute of a module is not one of PyTorch's tables and flags."""
    return name not in _INTERNALS and name[:2] != "__" and not name.endswith("_hooks")
