"""Detect backends that run operators later (XLA, PyTorch's lazy tensors).

Their tensors cannot be used under any dispatch mode: views and in-place writes raise, and the
tensors that reach the mode have no storage, so that reading it ends the process.
"""

from __future__ import annotations

from typing import Final

import torch

NO_OPS_WITH_LAZY: Final = "operators are not recorded: a lazy backend fails under any dispatch mode"


def has_lazy_backend() -> bool:
    """Return whether this process has a lazy backend."""
    try:
        torch._C._lazy._get_default_device_type()
    except RuntimeError:
        return False
    return True
