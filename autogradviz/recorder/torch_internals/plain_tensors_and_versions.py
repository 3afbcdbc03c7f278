"""Tensors of PyTorch's own classes, and version counters."""

from __future__ import annotations

from typing import Final

import torch

from autogradviz.events import NO_ID

PLAIN_TENSORS: Final = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})
"""PyTorch's own classes: reading an attribute of such a tensor runs no Python code."""


def version_of(tensor: torch.Tensor) -> int:
    """Return a tensor's version counter, NO_ID if it has none (inference mode)."""
    try:
        return tensor._version
    except RuntimeError:
        return NO_ID
