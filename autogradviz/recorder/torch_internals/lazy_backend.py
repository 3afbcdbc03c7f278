"""Backends that run operators later (XLA, PyTorch's own lazy one): no dispatch mode may be on.

Under any mode their tensors lose what makes views and writes work, so that programs raise, and
what reaches the mode has no storage: asking for it ends the process.
"""

from __future__ import annotations

from typing import Final

import torch

NO_OPS_WITH_LAZY: Final = "operators are not recorded: a lazy backend fails under any dispatch mode"


def has_lazy_backend() -> bool:
    """Return whether this process has a lazy backend."""
    try:
        torch._C._lazy._get_default_device_type()  # noqa: SLF001
    except RuntimeError:
        return False
    return True
