"""``compare``: the differences between two recordings of a program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.compare.align_lines import compare_scenes
from autogradviz.compare.compiled_regions import compiled_differences
from autogradviz.compare.counts import count_differences, step_differences
from autogradviz.compare.first_different_op import first_other_op, first_other_values
from autogradviz.compare.gradients import gradient_differences, hash_differences
from autogradviz.compare.result import Comparison, Difference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Analysis
    from autogradviz.scene import Scene
    from autogradviz.trace import Trace

__all__ = ["Comparison", "Difference", "compare"]


def compare(before: Trace, after: Trace) -> Comparison:
    """Return the differences between two recordings of the same program.

    Compares the number of steps, ops, saved tensors and their bytes, writes to saved tensors,
    checkpoint regions and recomputations, compiled regions with their saved bytes, recomputed ops,
    graph breaks and recompiles, the gradients of leaves (whether one arrived, whether it
    is finite, its L2 norm), and the exception. If one recording has more steps, counts that are
    proportional to the steps are not listed.

    If both recordings have fingerprints (``record(fingerprints=True)``), also the first op with
    different values and the leaves with different gradients.

    Args:
        before: one recording.
        after: another recording.

    Returns:
        The differences; falsy if there is none.

    Example:
        >>> with autogradviz.record(model) as other:
        ...     model(x).square().sum().backward()
        >>> autogradviz.compare(trace, trace)
        No differences.
        >>> [each.what for each in autogradviz.compare(trace, other) if each.aspect == "ops"]
        ['first difference', ...]
    """
    differences = tuple(_differences(before.analysis, after.analysis))
    return Comparison(
        differences,
        (before.title, after.title),
        lambda: _compare_scenes(before, after, differences),
    )


def _compare_scenes(
    before: Trace, after: Trace, differences: tuple[Difference, ...]
) -> tuple[Scene, Scene]:
    return compare_scenes(
        (before.analysis, after.analysis),
        (before._scene, after._scene),  # noqa: SLF001  the scene is not public
        (before.diagnose(), after.diagnose()),
        differences,
    )


def _differences(before: Analysis, after: Analysis) -> Iterator[Difference]:
    yield from step_differences(before, after)
    yield from first_other_op(before, after)
    yield from count_differences(before, after)
    yield from compiled_differences(before, after)
    yield from gradient_differences(before, after)
    yield from first_other_values(before, after)
    yield from hash_differences(before, after)
    kinds = [analysis.error.type_name if analysis.error else "none" for analysis in (before, after)]
    if kinds[0] != kinds[1]:
        yield Difference(aspect="error", what="raised", before=kinds[0], after=kinds[1])
