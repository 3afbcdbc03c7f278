"""What changed between two recordings of the same program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.compare.counts import count_differences, step_differences
from autogradviz.compare.gradients import gradient_differences, hash_differences
from autogradviz.compare.ops import first_other_op, first_other_values
from autogradviz.compare.result import Comparison, Difference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Analysis
    from autogradviz.trace import Trace

__all__ = ["Comparison", "Difference", "compare"]


def compare(before: Trace, after: Trace) -> Comparison:
    """Return what differs: steps, operators, saves, writes, checkpoints, gradients.

    Where one holds more steps than the other, what grows as they do is no difference.

    Of gradients: which arrived, which were finite, and the norms that they were left with.

    Where both recordings hold fingerprints (``record(fingerprints=True)``), also the first operator
    that gave other values and the leaves whose gradients differ.
    """
    found = tuple(_differences(before.analysis, after.analysis))
    return Comparison(found, (before.title, after.title))


def _differences(before: Analysis, after: Analysis) -> Iterator[Difference]:
    yield from step_differences(before, after)
    yield from first_other_op(before, after)
    yield from count_differences(before, after)
    yield from gradient_differences(before, after)
    yield from first_other_values(before, after)
    yield from hash_differences(before, after)
    kinds = [analysis.error.type_name if analysis.error else "none" for analysis in (before, after)]
    if kinds[0] != kinds[1]:
        yield Difference(aspect="error", what="raised", before=kinds[0], after=kinds[1])
