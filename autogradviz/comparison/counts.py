"""Differences in the number of steps, ops, saves, bytes, writes and checkpoint regions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from autogradviz.analysis.formatting import format_bytes, plural
from autogradviz.comparison.compiled_regions import only_one_is_compiled
from autogradviz.comparison.result import Difference
from autogradviz.event_log.training_steps import common_steps
from autogradviz.scene.display_text import merge_numbered_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import SavedTensor


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
    return Counter(f"{op.name}, {op.phase}" for op in analysis.ops)


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
        f"{entry.op or 'unseen'} on a saved tensor"
        for history in analysis.histories
        for entry in history.entries
        if entry.kind == "written"
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
