"""Shapes of results where PyTorch's kernel for shapes fails, or needs values that are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.recorder.torch_internals.private_api import (
    DisableTorchDispatch,
    DisableTorchFunction,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from autogradviz.planning.values_of_small_tensors import KnownValues

_BOOLEAN: Final = (torch.bool, torch.uint8)


def results_by_mask(func: Any, args: Any, values: KnownValues) -> Any:
    """Return the entries that an operator selects with masks that have values, or None.

    Returns:
        None for other operators, and for masks without values.
    """
    if str(func) == "aten.masked_select.default":
        mask = values.of(args[1])
        if mask is None:
            return None
        shape = torch.broadcast_shapes(args[0].shape, args[1].shape)
        return args[0].new_empty(_count(mask, shape))
    if str(func) == "aten.index.Tensor":
        indices: list[torch.Tensor | None] = []
        for index in args[1]:
            if index is None or index.dtype not in _BOOLEAN:
                indices.append(index)
                continue
            mask = values.of(index)
            if mask is None:
                return None
            selected = _count(mask, mask.shape)
            made = [index.new_empty(selected, dtype=torch.int64) for _ in range(index.dim())]
            indices += made
        return func(args[0], indices)
    return None


def _count(mask: torch.Tensor, shape: torch.Size) -> int:
    """Return the number of entries that a mask selects; it is no fake tensor."""
    with DisableTorchFunction(), DisableTorchDispatch():
        return int(mask.expand(shape).count_nonzero())


def _grouped_mm(
    a: torch.Tensor,
    b: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,  # noqa: ARG001 - of the operator
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Return the result of a product of matrices in groups.

    PyTorch's kernel for shapes takes bfloat16 only; those that compute take more (PyTorch 2.13).
    """
    groups = () if offs is None else (offs.shape[0],)
    if a.dim() == b.dim():
        shape = (*(groups if a.dim() == 2 else a.shape[:1]), a.shape[-2], b.shape[-1])  # noqa: PLR2004
    else:
        shape = (a.shape[-2], b.shape[-1])
    dtype = out_dtype or a.dtype
    entries = 16 // dtype.itemsize if a.is_cuda else 1  # rows are aligned
    row = -(-shape[-1] // entries) * entries
    stride = (shape[-2] * row, row, 1)[-len(shape) :]
    return torch.empty_strided(shape, stride, dtype=dtype, device=a.device)


def shapes_of(func: Any, args: Any) -> Callable[..., Any] | None:
    """Return a function for the results of an operator whose kernel for shapes raises, or None."""
    if str(func) == "aten._grouped_mm.default" and args[0].dtype is not torch.bfloat16:
        return _grouped_mm
    return None
