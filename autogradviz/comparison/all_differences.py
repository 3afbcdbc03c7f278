"""Every difference between two recordings, in the order in which they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.comparison.compiled_regions import compiled_differences, only_one_is_compiled
from autogradviz.comparison.counts import count_differences, step_differences
from autogradviz.comparison.first_different_op import first_other_op, first_other_values
from autogradviz.comparison.gradients import gradient_differences, hash_differences
from autogradviz.comparison.result import Difference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Analysis


def all_differences(before: Analysis, after: Analysis) -> Iterator[Difference]:
    """Yield every difference between two recordings, by aspect."""
    yield from step_differences(before, after)
    if not only_one_is_compiled(before, after):
        yield from first_other_op(before, after)
    yield from count_differences(before, after)
    yield from compiled_differences(before, after)
    yield from gradient_differences(before, after)
    yield from first_other_values(before, after)
    yield from hash_differences(before, after)
    kinds = [analysis.error.type_name if analysis.error else "none" for analysis in (before, after)]
    if kinds[0] != kinds[1]:
        yield Difference(aspect="error", what="raised", before=kinds[0], after=kinds[1])
