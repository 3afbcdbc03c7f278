"""``compare``: the differences between two recordings of a program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.comparison.compare_by_line import compare_scenes
from autogradviz.comparison.compiled_regions import compiled_differences, only_one_is_compiled
from autogradviz.comparison.counts import count_differences, step_differences
from autogradviz.comparison.first_different_op import first_other_op, first_other_values
from autogradviz.comparison.gradients import gradient_differences, hash_differences
from autogradviz.comparison.memory import memory_differences
from autogradviz.comparison.result import Comparison, Difference
from autogradviz.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Protocol

    from autogradviz.analysis import Analysis
    from autogradviz.scene import Scene

    class _Ranks(Protocol):
        def compare_with_single(self, single: Trace, tolerance: float | None = None) -> Comparison:
            """Return the first differences from a recording of one process."""


__all__ = ["compare"]


def compare(before: Trace, after: Trace | _Ranks, *, tolerance: float | None = None) -> Comparison:
    """Return the differences between two recordings of the same program.

    ``compare(single, run)`` compares the recording of one process with a ``Run``, the recordings of
    the ranks of the same program in parallel; see ``Run.compare_with_single``.

    Compares the number of steps, ops, saved tensors and their bytes, writes to saved tensors,
    checkpoint regions and recomputations, compiled regions with their saved bytes, recomputed ops,
    graph breaks and recompiles, the gradients of leaves (whether one arrived, whether it
    is finite, its L2 norm), and the exception. If one recording has more steps, counts that are
    proportional to the steps are not listed.

    If only one of the programs is compiled, its ops and slots have other names than those of eager
    code. Then saved bytes and recomputed ops are compared by line and module instead.

    If both recordings were made with ``record(memory=True)`` or ``plan``, also all memory at the
    peak by kind, and the statements that make most of the difference.

    If both recordings have fingerprints (``record(fingerprints=True)``), also the first op with
    different values and the leaves with different gradients.

    Args:
        before: one recording.
        after: another recording, or the ``Run`` of a parallel program.
        tolerance: for a ``Run`` only, the relative difference up to which sums and norms count
            as equal. By default 1e-3, and 3e-2 for float16 and bfloat16.

    Returns:
        The differences; falsy if there is none.

    Raises:
        TypeError: if one of them is no trace, or ``tolerance`` is given for two traces.
        RecordingStateError: if the recordings of a ``Run``, or of the process to compare it with,
            were not made with ``record(norms=True)``.

    Example:
        >>> with autogradviz.record(model) as other:
        ...     model(x).square().sum().backward()
        >>> autogradviz.compare(trace, trace)
        No differences.
        >>> [each.what for each in autogradviz.compare(trace, other) if each.aspect == "ops"]
        ['first difference', ...]
    """
    compare_with_single = getattr(after, "compare_with_single", None)
    if isinstance(before, Trace) and compare_with_single is not None:
        found: Comparison = compare_with_single(before, tolerance)
        return found
    if tolerance is not None:
        message = "compare() takes a tolerance for a trace and a run only"
        raise TypeError(message)
    for each in (before, after):
        if not isinstance(each, Trace):
            kind = type(each).__name__
            message = f"compare() takes two traces, not {kind}; load() opens a file"
            raise TypeError(message)
    assert isinstance(after, Trace)
    differences = tuple(_all_differences(before.analysis, after.analysis))
    return Comparison(
        differences,
        (before.title, after.title),
        lambda: _compare_scenes(before, after, differences),
    )


def _all_differences(before: Analysis, after: Analysis) -> Iterator[Difference]:
    """Yield every difference between two recordings, by aspect."""
    yield from step_differences(before, after)
    if not only_one_is_compiled(before, after):
        yield from first_other_op(before, after)
    yield from count_differences(before, after)
    yield from memory_differences(before, after)
    yield from compiled_differences(before, after)
    yield from gradient_differences(before, after)
    yield from first_other_values(before, after)
    yield from hash_differences(before, after)
    kinds = [analysis.error.type_name if analysis.error else "none" for analysis in (before, after)]
    if kinds[0] != kinds[1]:
        yield Difference(aspect="error", what="raised", before=kinds[0], after=kinds[1])


def _compare_scenes(
    before: Trace, after: Trace, differences: tuple[Difference, ...]
) -> tuple[Scene, Scene]:
    return compare_scenes(
        (before.analysis, after.analysis),
        (before._viewer_scene, after._viewer_scene),  # noqa: SLF001  the scene is not public
        (before.diagnose(), after.diagnose()),
        differences,
    )
