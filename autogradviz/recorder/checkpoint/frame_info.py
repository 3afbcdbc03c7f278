"""What a checkpoint frame knows of its region."""

from __future__ import annotations

import functools
from types import MethodType
from typing import Any

import torch
import torch.utils.checkpoint


def closure_vars(frame: Any) -> dict[str, Any]:
    """Return what the function that runs a region again holds: fn, kwargs, preserve_rng_state."""
    recompute = getattr(frame, "recompute_fn", None)
    names = getattr(getattr(recompute, "__code__", None), "co_freevars", ())
    held = {}
    for name, cell in zip(names, getattr(recompute, "__closure__", None) or (), strict=False):
        try:
            held[name] = cell.cell_contents
        except ValueError:  # not bound yet
            continue
    return held


def determinism_check(frame: Any) -> str:
    """Return what checkpoint compares of a region's saved tensors: "default" or "none"."""
    checks = torch.utils.checkpoint._allowed_determinism_checks_to_fns.items()  # noqa: SLF001
    found = getattr(frame, "metadata_fn", None)
    return next((name for name, check in checks if check is found), "default")


def function_name(function: Any) -> str:
    """Return what is checkpointed, by name."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, torch.nn.Module):
        return f"{type(function).__name__}.forward"
    if type(function) is MethodType:
        function = function.__func__
    try:
        # Past a ``__getattr__`` of the user's own, which would run.
        return str(object.__getattribute__(function, "__qualname__"))
    except AttributeError:
        return type(function).__name__
