"""The relative error of a gradient, and what passes for rounding of its dtype."""

from __future__ import annotations

from math import inf, isnan
from typing import Final

import torch

TOLERANCES: Final = {
    torch.float64: 1e-9, torch.complex128: 1e-9, torch.float32: 2e-4, torch.complex64: 2e-4,
    torch.float16: 5e-3, torch.complex32: 5e-3, torch.bfloat16: 3e-2,
}  # fmt: skip
"""The largest L2 norm of a difference that passes for rounding, relative to the larger norm."""
ROUNDING: Final = 3e-2
"""The largest relative error that saved-tensor hooks cause by packing in a narrower dtype."""
_TINY: Final = 1e-30
"""A difference of no larger norm is no error."""


def difference(
    got: torch.Tensor | None, want: torch.Tensor | None, inside: torch.dtype = torch.float64
) -> float | None:
    """Return the relative error of a gradient, None if it is no more than rounding.

    Args:
        got: a gradient.
        want: the right one.
        inside: the narrowest dtype in which it was computed, if not its own.

    An absent gradient is zero. NaN and infinity equal themselves, and so do entries that are no
    farther apart than the numbers around zero are in the narrowest dtype: float16 has none below
    6e-8, so that a cast to it leaves nothing of smaller gradients. Call it with function overrides
    and dispatch modes disabled, and without gradients.
    """
    if got is None or want is None:
        given = want if got is None else got
        return None if given is None or not bool(_dense(given).any()) else 1.0
    dtypes = (got.dtype, want.dtype, inside)
    tolerance = max(TOLERANCES.get(each, 2e-4) for each in dtypes)
    spacing = max(torch.finfo(each).tiny * torch.finfo(each).eps for each in dtypes)
    got, want = _dense(got), _dense(want)
    if got.shape != want.shape:
        try:
            want = want.sum_to_size(got.shape)  # as the engine does before it passes it on
        except RuntimeError:
            return inf
    if torch.equal(got, want):
        return None
    error = relative_error(got, want, spacing)
    return error if error > tolerance else None


def relative_error(got: torch.Tensor, want: torch.Tensor, spacing: float = 0.0) -> float:
    """Return the norm of a difference, relative to the larger norm of both; 0 if it is tiny.

    Entries that differ by no more than ``spacing`` count as equal.
    """
    wide = torch.complex128 if got.is_complex() or want.is_complex() else torch.float64
    got, want = got.detach().to(wide), want.detach().to(wide)
    same = (got == want) | (got.isnan() & want.isnan())
    apart = torch.where(same, torch.zeros_like(got), got - want)
    apart = torch.where(apart.abs() <= spacing, torch.zeros_like(apart), apart)
    largest = max(_finite_norm(got), _finite_norm(want))
    norm = float(torch.linalg.vector_norm(apart))
    if isnan(norm):
        return inf
    if norm <= _TINY:
        return 0.0
    return norm / largest if largest else inf


def _finite_norm(tensor: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(torch.nan_to_num(tensor, 0.0, 0.0, 0.0)))


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    tensor = tensor if tensor.layout is torch.strided else tensor.to_dense()
    return tensor.to(torch.complex64) if tensor.dtype is torch.complex32 else tensor


def is_straight_through(got: torch.Tensor | None, want: torch.Tensor | None) -> bool:
    """Return whether a gradient is the derivative but passes also where the derivative is zero."""
    if got is None:
        return False
    if want is None:
        return True
    got, want = _dense(got), _dense(want)
    if got.shape != want.shape:
        return False
    flat = want == 0
    if not bool(flat.any()):
        return False
    return difference(torch.where(flat, torch.zeros_like(got), got), want) is None
