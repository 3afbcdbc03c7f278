"""Warnings about names that the next release removes."""

from __future__ import annotations

import warnings


def warn_deprecated(old: str, new: str) -> None:
    """Warn the caller's caller that a name is deprecated.

    Args:
        old: the deprecated name, "Trace.model".
        new: the name to use instead.
    """
    message = f"{old} is deprecated and will be removed in the next release; use {new}"
    warnings.warn(message, DeprecationWarning, stacklevel=3)
