"""The first op that differs, and the first op whose values differ."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from autogradviz.comparison.result import Difference
from autogradviz.comparison.uninitialized import Uninitialized
from autogradviz.events import NO_ID

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Op


def first_other_op(before: Analysis, after: Analysis) -> Iterator[Difference]:
    """Yield the first pair of ops with different names, modules, shapes or dtypes."""
    for first, second in zip(before.ops, after.ops, strict=False):
        if _signature(first) != _signature(second):
            yield _first("ops", first, second)
            return


def first_other_values(before: Analysis, after: Analysis) -> Iterator[Difference]:
    """Yield the first op whose values differ after identical ops.

    The contents of uninitialized memory are not compared.
    """
    memory = Uninitialized(), Uninitialized()
    for first, second in zip(before.ops, after.ops, strict=False):
        if _signature(first) != _signature(second):
            return
        defined = [each.follow(op) for each, op in zip(memory, (first, second), strict=True)]
        comparable = (
            all(defined) and _has_all(first.output_hashes) and _has_all(second.output_hashes)
        )
        if comparable and first.output_hashes != second.output_hashes:
            yield _first("values", first, second)
            return


def _first(aspect: str, first: Op, second: Op) -> Difference:
    return Difference(
        aspect=aspect, what="first difference", before=_describe(first), after=_describe(second)
    )


def _signature(op: Op) -> Hashable:
    outputs = tuple((tensor.shape, tensor.dtype) for tensor in op.outputs)
    return op.overload, op.phase, op.module, outputs


def _describe(op: Op) -> str:
    shapes = ", ".join(f"{tensor.dtype}{list(tensor.shape)}" for tensor in op.outputs)
    place = f" at {PurePath(str(op.location)).name}" if op.location else ""
    return f"{op.name} → {shapes}{place}"


def _has_all(hashes: tuple[int, ...]) -> bool:
    return bool(hashes) and NO_ID not in hashes
