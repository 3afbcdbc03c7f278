"""Names of functions that users pass: to checkpoint, as hooks."""

from __future__ import annotations

from functools import partial
from types import MethodType
from typing import Any

import torch


def function_name(function: Any) -> str:
    """Return the name of a callable in its source."""
    while isinstance(function, partial):
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


def hook_name(hook: Any) -> str:
    """Return the name of a hook in its source."""
    while isinstance(hook, partial):
        hook = hook.func
    name = getattr(hook, "__qualname__", None)
    return str(name) if isinstance(name, str) else f"{type(hook).__qualname__}.__call__"
