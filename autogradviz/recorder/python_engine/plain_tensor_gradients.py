"""Gradients that can be read without the checks that unusual tensors need."""

from __future__ import annotations

from typing import Final

import torch

_ITEMSIZES: Final = {torch.float32: 4, torch.float64: 8, torch.float16: 2, torch.bfloat16: 2}
"""Bytes of an entry, for the dtypes that most gradients have."""


def ordinary_nbytes(gradient: torch.Tensor) -> int:
    """Return the bytes of a contiguous real gradient on the host, 0 for any other one.

    For these half of the checks of ``readable`` are enough. Tensors that functorch wraps, and those
    that are not strided, have no storage.
    """
    itemsize = _ITEMSIZES.get(gradient.dtype)
    if itemsize is None or type(gradient) is not torch.Tensor or not gradient.is_cpu:
        return 0
    try:
        storage = gradient.untyped_storage()
    except RuntimeError:
        return 0
    if gradient.is_nested or gradient.is_neg() or gradient._is_zerotensor():  # noqa: SLF001
        return 0
    nbytes = gradient.numel() * itemsize
    allocated = storage.nbytes() - gradient.storage_offset() * itemsize >= nbytes
    return nbytes if allocated and gradient.is_contiguous() else 0
