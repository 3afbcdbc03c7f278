"""Modules of inductor and AOTAutograd that ``check`` reads; importing them takes a second."""

from __future__ import annotations

from typing import Any


def inductor_config() -> Any:
    """Return the options of inductor."""
    from torch._inductor import config

    return config


def inductor_compiler() -> Any:
    """Return the module that has ``compile_fx``."""
    from torch._inductor import compile_fx

    return compile_fx


def without_autograd_cache() -> Any:
    """Return a context in which AOTAutograd reads no graphs from its cache."""
    from torch._functorch import config

    return config.patch(enable_autograd_cache=False)
