"""Stages of a pipeline that compute longer than the others."""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Final

from autogradviz import event_log
from autogradviz.diagnose import Finding
from autogradviz.diagnose.finding_text import explain
from autogradviz.events import CollectiveWaited

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.distributed_runs.rank_files import RankFile
from autogradviz.distributed_runs.ranks_unlike_others import LEAST_STEPS

_UNEVEN: Final = 1.5  # times the median of the other stages
_UNEVEN_NS: Final = 10_000_000
_MOST_LISTED: Final = 8


def find_uneven_stages(files: Sequence[RankFile]) -> tuple[tuple[int, Finding], ...]:
    """Return the rank and the finding of the stage that sets the pace of a pipeline.

    The ranks of a pipeline are those that send and receive. The time of a step is that between
    the ends of two steps, without what the program waited for communication.
    """
    stages = [file for file in files if any(p.number is None for p in file.summary.newest)]
    times = {file.rank: _computing_ns(file) for file in stages}
    known = {rank: each for rank, each in times.items() if len(each) >= LEAST_STEPS}
    if len(known) < 2 or len(known) < len(stages):  # noqa: PLR2004 - nothing to compare
        return ()
    medians = {rank: median(each) for rank, each in known.items()}
    slowest = max(medians, key=lambda rank: medians[rank])
    others = [rank for rank in known if rank != slowest]
    usual = median(medians[rank] for rank in others)
    # Single steps may be slow or fast for any reason.
    low = sorted(known[slowest])[len(known[slowest]) // 4]
    high = max(sorted(known[rank])[-1 - len(known[rank]) // 4] for rank in others)
    if low <= max(_UNEVEN * usual, high) or low - usual <= _UNEVEN_NS:
        return ()
    return ((slowest, _finding(slowest, medians, usual)),)


def _computing_ns(file: RankFile) -> list[int]:
    """Return the duration of each step from the third on, without waits for communication."""
    ends = [step.ended_ns for step in file.summary.steps if step.ended]
    waits = event_log.read_kinds(file.path, (CollectiveWaited,)).of(CollectiveWaited)
    return [
        end - start - sum(each.duration_ns for each in waits if start < each.time_ns <= end)
        for start, end in pairwise(ends[1:])
    ]


def _finding(slowest: int, medians: dict[int, float], usual: float) -> Finding:
    ordered = sorted(medians)
    listed = [f"rank {rank}: {medians[rank] / 1e6:.1f} ms" for rank in ordered[:_MOST_LISTED]]
    if len(ordered) > _MOST_LISTED:
        listed.append(f"{len(ordered) - _MOST_LISTED:,} others")
    return Finding(
        slug="pipeline-stages-uneven",
        title=f"the pipeline stage of rank {slowest} computes {medians[slowest] / usual:.1f} times "
        "as long as the others",
        culprit=None,
        victim=None,
        explanation=explain(
            "Each step of a rank takes, without waits for communication:",
            *(f"    {line}" for line in listed),
            "These are the medians of the steps from the third on, with the cost of the "
            "recording. The other stages wait for the slowest one in each microbatch.",
        ),
        fix=f"# move layers from the stage of rank {slowest} to the others",
        confidence="hint",
        events=(),
    )
