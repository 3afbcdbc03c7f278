"""``compare``: the differences between two recordings of a program."""

from __future__ import annotations

from collections import Counter
from pathlib import PurePath
from typing import TYPE_CHECKING

from autogradviz.analysis.align_ops import OpIdentity, computing, first_difference, identify
from autogradviz.analysis.formatting import format_bytes, join_repeated, plural
from autogradviz.comparison.compare_by_line import compare_scenes
from autogradviz.comparison.compiled_regions import compiled_differences, only_one_is_compiled
from autogradviz.comparison.gradients import gradient_differences, hash_differences
from autogradviz.comparison.memory import memory_differences
from autogradviz.comparison.result import Comparison, Difference
from autogradviz.event_log.training_steps import common_steps
from autogradviz.scene.label_text_and_width import merge_numbered_names
from autogradviz.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Op, SavedTensor, SourceLocation


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


# --- differences in the number of steps, ops, saves, bytes, writes and checkpoint regions ---------


def step_differences(before: Analysis, after: Analysis) -> Iterator[Difference]:
    """Yield a difference in the number of steps."""
    steps = _steps(before, after)
    if steps[0] != steps[1]:
        first, second = (f"{count:,}" for count in steps)
        yield Difference(aspect="steps", what="steps that ended", before=first, after=second)


def count_differences(before: Analysis, after: Analysis) -> Iterator[Difference]:
    """Yield differences in counts; those proportional to the steps are only counted.

    Ops and saves have other names in compiled code, so they are not compared with eager code; nor
    is the peak, because what a compiled backward computes again is not seen.
    """
    both = (before, after)
    steps = _steps(before, after)
    counts = {
        "ops": [_ops(analysis) for analysis in both],
        "saved": [_saves(analysis) for analysis in both],
        "writes": [_writes(analysis) for analysis in both],
        "checkpoint": _checkpoints(*both),
    }
    if only_one_is_compiled(before, after):
        counts["ops"] = counts["saved"] = [Counter(), Counter()]
    for aspect, (first, second) in counts.items():
        proportional = 0
        for what in dict.fromkeys((*first, *second)):
            old, new = first[what], second[what]
            if old == new:
                continue
            if all(steps) and old * new > 0 and old * steps[1] == new * steps[0]:
                proportional += 1
            else:
                yield Difference(aspect=aspect, what=what, before=f"{old:,}", after=f"{new:,}")
        if proportional:
            what = plural(proportional, "count")
            yield Difference(
                aspect=aspect, what=what, before="", after="in proportion to the steps"
            )
        if aspect == "saved" and not only_one_is_compiled(before, after):
            yield from _byte_differences(before, after)


def _steps(before: Analysis, after: Analysis) -> list[int]:
    """Return the number of steps that ended in each recording."""
    both = common_steps(before.steps, after.steps)
    return [sum(step.ended for step in steps) for steps in both]


def _ops(analysis: Analysis) -> Counter[str]:
    return Counter(f"{op.name}, {op.phase}" for op in computing(analysis.ops))


def _saves(analysis: Analysis) -> Counter[str]:
    return Counter(
        _slot(analysis, saved) for saved in analysis.saved.values() if saved.recompute_id is None
    )


def _slot(analysis: Analysis, saved: SavedTensor) -> str:
    node = analysis.graph.nodes.get(-1 if saved.node_id is None else saved.node_id)
    saver = "checkpoint" if saved.is_argument else "?" if node is None else node.name
    return f"{saver}.{saved.slot or '?'}"


def _writes(analysis: Analysis) -> Counter[str]:
    return Counter(
        f"{entry.op or 'unseen'} on a saved tensor, at any time"
        for history in analysis.histories
        for entry in analysis.writes(history.storage_id)
    )


def _checkpoints(before: Analysis, after: Analysis) -> list[Counter[str]]:
    """Return the counts of regions and recomputations; numbered blocks are counted together."""
    regions = [*before.regions, *after.regions]
    names = merge_numbered_names(region.module or region.function or "?" for region in regions)
    return [_regions(analysis, names) for analysis in (before, after)]


def _regions(analysis: Analysis, names: dict[str, str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for region in analysis.regions:
        name = names[region.module or region.function or "?"]
        counts[f"regions of {name}"] += 1
        for run in region.recomputations:
            ended = (run.outcome or "unfinished").replace("_", " ")
            counts[f"recomputations of {name}, {ended}"] += 1
    return counts


def _byte_differences(before: Analysis, after: Analysis) -> Iterator[Difference]:
    peaks = [max(analysis.memory.nbytes, default=0) for analysis in (before, after)]
    if peaks[0] != peaks[1]:
        first, second = map(format_bytes, peaks)
        yield Difference(aspect="saved", what="bytes at the peak", before=first, after=second)


# --- the first op that differs, and the first op whose values differ ------------------------------


def first_other_op(before: Analysis, after: Analysis) -> Iterator[Difference]:
    """Yield the first pair of ops with different names, modules, shapes or dtypes.

    Only one of the programs may have called ``checkpoint`` around ops before it: then that call is
    the difference, and not an op of its own in the region.
    """
    ops_before, ops_after = computing(before.ops), computing(after.ops)
    at = first_difference(*_identities(ops_before, ops_after), OpIdentity.is_same_op)
    if at is None:
        return
    regions = [
        {region.region_id: region for region in analysis.regions} for analysis in (before, after)
    ]
    for ops in zip(ops_before[: at + 1], ops_after[: at + 1], strict=True):
        pair = [
            None if op.region_id is None else known.get(op.region_id)
            for op, known in zip(ops, regions, strict=True)
        ]
        if (pair[0] is None) != (pair[1] is None):
            texts = (
                op.name
                if region is None
                else f"{op.name} in checkpoint({region.function}){_at(region.location)}"
                for op, region in zip(ops, pair, strict=True)
            )
            old, new = texts
            yield Difference(aspect="ops", what="first difference", before=old, after=new)
            return
    yield _first("ops", ops_before[at], ops_after[at])


def first_other_values(before: Analysis, after: Analysis) -> Iterator[Difference]:
    """Yield the first op whose values differ after identical ops."""
    ops_before, ops_after = computing(before.ops), computing(after.ops)
    first, second = _identities(ops_before, ops_after)
    at = first_difference(first, second, OpIdentity.agrees)
    if at is not None and first[at].is_same_op(second[at]):
        yield _first("values", ops_before[at], ops_after[at])


def _identities(before: list[Op], after: list[Op]) -> tuple[list[OpIdentity], list[OpIdentity]]:
    """Return the ops of both recordings, up to the end of the one that has fewer."""
    shared = min(len(before), len(after))
    return identify(before[:shared]), identify(after[:shared])


def _first(aspect: str, first: Op, second: Op) -> Difference:
    return Difference(
        aspect=aspect, what="first difference", before=_describe(first), after=_describe(second)
    )


def _describe(op: Op) -> str:
    shapes = join_repeated(f"{tensor.dtype}{list(tensor.shape)}" for tensor in op.outputs)
    return f"{op.name} → {shapes}{_at(op.location)}"


def _at(location: SourceLocation | None) -> str:
    return f" at {PurePath(str(location)).name}" if location else ""
