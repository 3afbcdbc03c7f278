"""Recomputations that differ between two ranks."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Final, TypeAlias

from autogradviz import event_log
from autogradviz.diagnose import Finding
from autogradviz.diagnose.finding_text import describe_op, describe_region, explain
from autogradviz.distributed_runs.branch_or_loop_that_decided import find_branch_not_taken
from autogradviz.events import (
    RecomputeStarted,
)
from autogradviz.trace import load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.analysis import Analysis, Op, Recomputation, Region
    from autogradviz.analysis.types import OpPair, SourceLocation
    from autogradviz.distributed_runs.rank_files import RankFile


_Run: TypeAlias = tuple["Region", "Recomputation"]
_EQUAL: Final = ("same", "other_input", "cached", "not_rerun")


def find_recompute_differences(file: RankFile, other: RankFile) -> tuple[tuple[int, Finding], ...]:
    """Return the finding for the rank whose recomputation differs from its own forward.

    FSDP may gather parameters in one of the two runs only. So a difference counts only if the
    other rank does not have the same one.

    Args:
        file: one rank.
        other: another rank that should do the same.

    Returns:
        The rank and its finding, of the first such recomputation; empty if there is none.
    """
    files = file, other
    if not all(
        event_log.read_kinds(f.path, (RecomputeStarted,)).count(RecomputeStarted) for f in files
    ):
        return ()
    recordings = [load(each.path).analysis for each in files]
    runs = [_recomputations(each) for each in recordings]
    for ours, theirs in zip_longest(*runs):
        found = [_differing(each) for each in (ours, theirs)]
        if found[0] == found[1]:
            continue
        odd = 0 if found[0] else 1
        if found[1 - odd]:
            return ()  # both differ from their forwards, in different ways
        run = ours if odd == 0 else theirs
        assert run is not None
        finding = _recompute_finding(files[odd].rank, files[1 - odd].rank, recordings[odd], *run)
        return ((files[odd].rank, finding),)
    return ()


def _recomputations(analysis: Analysis) -> list[_Run]:
    """Return regions with their recomputations, in the order in which they ran."""
    runs = [(region, each) for region in analysis.regions for each in region.recomputations]
    return sorted(runs, key=lambda run: run[1].started_seq)


def _differing(run: _Run | None) -> list[tuple[str, str, str | None]]:
    """Return the ops that only one of forward and recomputation has, or that differ."""
    if run is None:
        return []
    return [
        (pair.status, op.name, str(op.location))
        for pair in run[1].pairs
        for op in (pair.recompute or pair.forward,)
        if pair.status not in _EQUAL and op is not None
    ]


def _recompute_finding(
    rank: int, other: int, analysis: Analysis, region: Region, again: Recomputation
) -> Finding:
    pair = next(pair for pair in again.pairs if pair.status not in _EQUAL)
    op = pair.recompute or pair.forward
    assert op is not None
    branch = _branch(analysis, op, region.ops if pair.recompute is not None else again.ops)
    return Finding(
        slug="recompute-diverged-on-rank",
        title=f"rank {rank} recomputes a checkpoint with other ops than its forward had, and rank "
        f"{other} does not",
        culprit=branch or op.location,
        victim=region.location,
        explanation=explain(
            f"{describe_region(region)} was recomputed on rank {rank}. {_describe(pair)}:",
            op.location,
            "Forward and recomputation took this branch differently:" if branch else "",
            branch,
            f"On rank {other}, the same recomputation equals its forward. If the region "
            "communicates, the ranks then call different collectives.",
        ),
        fix="# decide outside of the checkpointed function, and pass the decision as an argument",
        confidence="certain" if branch is not None else "likely",
        events=(op.seq,),
        region_id=region.region_id,
    )


def _describe(pair: OpPair) -> str:
    if pair.forward is None:
        return f"The forward lacks an op of the recomputation: {describe_op(pair.recompute)}"
    if pair.recompute is None:
        return f"The recomputation lacks an op of the forward: {describe_op(pair.forward)}"
    return (
        f"The forward called {describe_op(pair.forward)}, and the recomputation "
        f"{describe_op(pair.recompute)}"
    )


def _branch(analysis: Analysis, op: Op, others: Sequence[Op]) -> SourceLocation | None:
    """Return the branch that leads to an op, and that the other ops of the region did not take.

    Only lines of the region count: the recomputation is called from backward, the forward is not.
    """
    lines = {line for each in others for line in analysis.user_stack(each.stack_id)}
    functions = {(line.filename, line.function) for line in lines}
    inside = []
    for line in analysis.user_stack(op.stack_id):
        if (line.filename, line.function) not in functions:
            break
        inside.append(line)
    return find_branch_not_taken(inside, lines)
