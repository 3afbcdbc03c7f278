"""The nodes whose formulas ask for a dispatch mode, which is suspended while they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch

from autogradviz.recorder.torch_internals.nodes import slots_of

if TYPE_CHECKING:
    from collections.abc import Sequence


# NOTE [ Formulas that ask whether a mode is active ] While any dispatch mode is active PyTorch
# treats every tensor as a subclass, and a few backward formulas then compute the same gradient in
# another way: with different rounding, with NaN where an infinite gradient meets a zero, or without
# the check that would have raised. ``OpMode`` is suspended while those nodes run, and while a
# sparse gradient reaches a leaf; the operators inside them are not recorded. The formulas of the
# binary cross entropies write in place without a mode, which rounds to the dtype of the tensor
# written: that shows only if a node saved tensors of different dtypes. The check in the formula of
# ``eigh`` is there for complex matrices, whose eigenvalues are real. A write to a view leaves a
# ``CopySlices`` node, which hides its formula: the operator that wrote identifies it.


OpNames: TypeAlias = Callable[[int], list[str]]
"""Returns the names of the ops that created the node of a sequence number, one for each thread."""

Condition: TypeAlias = Callable[[Any, OpNames], bool]
"""Returns whether the formula of a node would differ under a mode."""


def _always(_node: Any, _op_names: OpNames) -> bool:
    return True


def _mixes_dtypes(node: Any, _op_names: OpNames) -> bool:
    """Return whether a node saved tensors of several dtypes, or hooks hide them."""
    dtypes = set()
    for name, _ in slots_of(type(node)):
        try:
            slot = getattr(node, name)
        except RuntimeError:  # the graph was freed
            continue
        if slot.unpack_hook is not None:
            return True
        if isinstance(slot.data, torch.Tensor):
            dtypes.add(slot.data.dtype)
    return len(dtypes) > 1


def _fills_with_gradient(node: Any, _op_names: OpNames) -> bool:
    """Return whether the fill value of a node gets a gradient."""
    _, (value, _) = node.next_functions
    return value is not None


def _writes_sensitively(node: Any, op_names: OpNames) -> bool:
    """Return whether a write to a view has such a formula, or its operator was not recorded.

    If an operator is about to overwrite a tensor that its formula needs, PyTorch clones it first:
    ``cumprod_``, and others that take nothing else.
    """
    names = op_names(node._sequence_nr() - 1)
    others = [other is not None for other, _ in node.next_functions[1:]]
    filled = "aten.masked_fill_.Tensor" in names and any(others)
    return not names or filled or ("aten.clone.default" in names and not others)


MODE_SENSITIVE: Final[dict[str, Condition]] = {
    "BinaryCrossEntropyBackward0": _mixes_dtypes,
    "BinaryCrossEntropyBackwardBackward0": _mixes_dtypes,
    "BinaryCrossEntropyWithLogitsBackward0": _mixes_dtypes,
    "CopySlices": _writes_sensitively,
    "CumprodBackward0": _always,
    "LinalgDetBackward0": _always,
    "LinalgEigBackward0": _always,
    "LinalgEighBackward0": _mixes_dtypes,
    "LinalgLstsqBackward0": _always,
    "LinalgMatrixExpBackward0": _always,
    "MaskedFillBackward1": _fills_with_gradient,
    "MaxBackward1": _always,
    "MedianBackward0": _always,
    "MinBackward1": _always,
    "NanmedianBackward0": _always,
    "ProdBackward0": _always,
    "ProdBackward1": _always,
}


def is_sparse(gradients: Sequence[Any]) -> bool:
    """Return whether a leaf is about to receive a sparse gradient.

    The indices and values that a mode has seen have Python objects; PyTorch would then give the
    leaf a copy of the gradient and not the gradient itself.
    """
    first = gradients[0] if len(gradients) == 1 else None
    return isinstance(first, torch.Tensor) and first.layout is not torch.strided
