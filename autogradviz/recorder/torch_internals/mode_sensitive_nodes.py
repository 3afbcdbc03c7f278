"""Which nodes the dispatch mode leaves alone.

NOTE [ Formulas that ask whether a mode is active ]
PyTorch takes every tensor for a subclass while any dispatch mode is active, and a few backward
formulas then compute the same gradient in another way: with another rounding, with NaN where an
infinite gradient meets a zero, or without the check that would have raised. ``OpMode`` steps aside
while those nodes run, and where a sparse gradient reaches a leaf; the operators inside them are not
recorded. The formulas of the binary cross entropies write in place without a mode, which rounds to
the type of what is written: that shows only where the types that a node saved differ. The check in
the formula of ``eigh`` is there for complex matrices, whose eigenvalues are real. A write to a view
leaves ``CopySlices``, which keeps its formula to itself: the operator that wrote tells which it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch

from autogradviz.recorder.saved_tensors.node_slots import slots_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from autogradviz.recorder.recorder import Recorder

Condition: TypeAlias = "Callable[[Any, Recorder], bool]"
"""Whether the formula of one node of a kind would differ under a mode."""


def _always(_node: Any, _recorder: Recorder) -> bool:
    return True


def _mixes_types(node: Any, _recorder: Recorder) -> bool:
    """Return whether a node saved tensors of several types, or hooks hide what it saved."""
    types = set()
    for name, _ in slots_of(type(node)):
        try:
            slot = getattr(node, name)
        except RuntimeError:  # the graph was freed
            continue
        if slot.unpack_hook is not None:
            return True
        if isinstance(slot.data, torch.Tensor):
            types.add(slot.data.dtype)
    return len(types) > 1


def _fills_with_gradient(node: Any, _recorder: Recorder) -> bool:
    """Return whether the value that a node filled in gets a gradient."""
    _, (value, _) = node.next_functions
    return value is not None


def _writes_sensitively(node: Any, recorder: Recorder) -> bool:
    """Return whether a write to a view was one with such a formula, or nobody saw which it was.

    Before an operator writes over what its formula needs, PyTorch clones it: ``cumprod_``, and
    others that take nothing else.
    """
    names = recorder.saves.creators(node._sequence_nr() - 1)  # noqa: SLF001 - has no public name
    others = [other is not None for other, _ in node.next_functions[1:]]
    filled = "aten.masked_fill_.Tensor" in names and any(others)
    return not names or filled or ("aten.clone.default" in names and not others)


MODE_SENSITIVE: Final[dict[str, Condition]] = {
    "BinaryCrossEntropyBackward0": _mixes_types,
    "BinaryCrossEntropyBackwardBackward0": _mixes_types,
    "BinaryCrossEntropyWithLogitsBackward0": _mixes_types,
    "CopySlices": _writes_sensitively,
    "CumprodBackward0": _always,
    "LinalgDetBackward0": _always,
    "LinalgEigBackward0": _always,
    "LinalgEighBackward0": _mixes_types,
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
