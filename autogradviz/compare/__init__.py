"""``compare``: the differences between two recordings of a program."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autogradviz.compare.result import Comparison, Difference
    from autogradviz.scene import Scene
    from autogradviz.trace import Trace

__all__ = ["compare"]


def compare(before: Trace, after: Trace) -> Comparison:
    """Return the differences between two recordings of the same program.

    Compares the number of steps, ops, saved tensors and their bytes, writes to saved tensors,
    checkpoint regions and recomputations, compiled regions with their saved bytes, recomputed ops,
    graph breaks and recompiles, the gradients of leaves (whether one arrived, whether it
    is finite, its L2 norm), and the exception. If one recording has more steps, counts that are
    proportional to the steps are not listed.

    If only one of the programs is compiled, its ops and slots have other names than those of eager
    code. Then saved bytes and recomputed ops are compared by line and module instead.

    If both recordings have fingerprints (``record(fingerprints=True)``), also the first op with
    different values and the leaves with different gradients.

    Args:
        before: one recording.
        after: another recording.

    Returns:
        The differences; falsy if there is none.

    Raises:
        TypeError: if one of them is no trace.

    Example:
        >>> with autogradviz.record(model) as other:
        ...     model(x).square().sum().backward()
        >>> autogradviz.compare(trace, trace)
        No differences.
        >>> [each.what for each in autogradviz.compare(trace, other) if each.aspect == "ops"]
        ['first difference', ...]
    """
    # Late imports, because ``import autogradviz`` imports this module.
    from autogradviz.compare.all_differences import all_differences
    from autogradviz.compare.result import Comparison
    from autogradviz.trace import Trace

    for each in (before, after):
        if not isinstance(each, Trace):
            # callers need not be typed
            message = f"compare() takes two traces, not {type(each).__name__}; load() opens a file"  # type: ignore[unreachable]
            raise TypeError(message)
    differences = tuple(all_differences(before.analysis, after.analysis))
    return Comparison(
        differences,
        (before.title, after.title),
        lambda: _compare_scenes(before, after, differences),
    )


def _compare_scenes(
    before: Trace, after: Trace, differences: tuple[Difference, ...]
) -> tuple[Scene, Scene]:
    from autogradviz.compare.align_lines import compare_scenes

    return compare_scenes(
        (before.analysis, after.analysis),
        (before._scene, after._scene),  # noqa: SLF001  the scene is not public
        (before.diagnose(), after.diagnose()),
        differences,
    )
