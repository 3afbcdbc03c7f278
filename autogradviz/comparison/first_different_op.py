"""The first op that differs, and the first op whose values differ."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from autogradviz.analysis.align_ops import OpIdentity, first_difference, identify
from autogradviz.comparison.result import Difference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Op


def first_other_op(before: Analysis, after: Analysis) -> Iterator[Difference]:
    """Yield the first pair of ops with different names, modules, shapes or dtypes."""
    at = first_difference(*_identities(before, after), OpIdentity.is_same_op)
    if at is not None:
        yield _first("ops", before.ops[at], after.ops[at])


def first_other_values(before: Analysis, after: Analysis) -> Iterator[Difference]:
    """Yield the first op whose values differ after identical ops."""
    first, second = _identities(before, after)
    at = first_difference(first, second, OpIdentity.agrees)
    if at is not None and first[at].is_same_op(second[at]):
        yield _first("values", before.ops[at], after.ops[at])


def _identities(before: Analysis, after: Analysis) -> tuple[list[OpIdentity], list[OpIdentity]]:
    """Return the ops of both recordings, up to the end of the one that has fewer."""
    shared = min(len(before.ops), len(after.ops))
    return identify(before.ops[:shared]), identify(after.ops[:shared])


def _first(aspect: str, first: Op, second: Op) -> Difference:
    return Difference(
        aspect=aspect, what="first difference", before=_describe(first), after=_describe(second)
    )


def _describe(op: Op) -> str:
    shapes = ", ".join(f"{tensor.dtype}{list(tensor.shape)}" for tensor in op.outputs)
    place = f" at {PurePath(str(op.location)).name}" if op.location else ""
    return f"{op.name} → {shapes}{place}"
