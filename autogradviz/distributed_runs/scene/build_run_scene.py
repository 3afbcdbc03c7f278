"""The view model of a run of several ranks."""

from __future__ import annotations

from array import array
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.align_ops import first_difference, side_by_side
from autogradviz.analysis.formatting import short_source_line
from autogradviz.diagnose.finding_text import short_location
from autogradviz.distributed_runs.collective_differences import find_collective_differences
from autogradviz.distributed_runs.first_different_op import RankOps
from autogradviz.distributed_runs.rank_files import (
    describe_end,
    describe_ranks,
    describe_unreadable,
)
from autogradviz.distributed_runs.ranks_unlike_others import compare_steps
from autogradviz.distributed_runs.scene import schema
from autogradviz.distributed_runs.scene.collective_lanes import build_lanes
from autogradviz.distributed_runs.scene.schema import OpDifference, OpPair
from autogradviz.scene.tables_of_findings_timeline_memory_and_lines import texts_of_finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from autogradviz.distributed_runs.rank_files import RankFile
    from autogradviz.distributed_runs.ranks_unlike_others import Aspect, OddRank
    from autogradviz.distributed_runs.run_interface_for_scene import ReadableRun
    from autogradviz.event_log import RankSummary, StepTotals


# --- the ops of an odd rank beside those of another rank ------------------------------------------


MOST: Final = 12
"""Pairs of ranks whose ops are compared."""

_BEFORE: Final = 5
_AFTER: Final = 15  # rows from the first difference on
_ALIGNED: Final = 80  # ops from the first difference on, which are aligned


def build_op_differences(
    odd: Sequence[OddRank], by_rank: Mapping[int, RankFile]
) -> Iterator[OpDifference]:
    """Yield the ops of each rank that runs other ops, and of its reference."""
    pairs = [each for each in odd if each.aspect == "ops" and each.step is not None]
    for each in pairs[:MOST]:
        assert each.step is not None
        found = compare_ops(by_rank[each.rank], by_rank[each.reference], each.step)
        if found is not None:
            yield found


def compare_ops(file: RankFile, reference: RankFile, step: int) -> OpDifference | None:
    """Return the ops around the first one that differs, None if all are equal or not recorded."""
    ours, theirs = RankOps(file, step), RankOps(reference, step)
    first, second = ([op[:2] for op in each.ops] for each in (ours, theirs))
    at = first_difference(first, second)
    if at is None:
        return None
    start = max(0, at - _BEFORE)
    window = first[start : at + _ALIGNED], second[start : at + _ALIGNED]
    return OpDifference(
        rank=file.rank,
        reference=reference.rank,
        step=step,
        index=at,
        rows=tuple(
            OpPair(
                own=_name(ours, start, own),
                own_place=_place(ours, start, own),
                other=_name(theirs, start, other),
                other_place=_place(theirs, start, other),
            )
            for own, other in islice(side_by_side(*window), _BEFORE + _AFTER)
        ),
    )


def _name(ops: RankOps, start: int, place: int | None) -> str:
    return "" if place is None else ops.name(start + place)


def _place(ops: RankOps, start: int, place: int | None) -> str:
    location = None if place is None else ops.location(start + place)
    return "" if location is None else short_location(location)


# --- build the scene of a run ---------------------------------------------------------------------


_WORDS: Final[dict[Aspect, str]] = {
    "ops": "other ops",
    "collectives": "other collectives",
    "loss": "loss",
    "gradients": "gradients",
    "parameters": "parameters",
    "time": "time",
}
_FLAGS: Final[dict[Aspect, int]] = {
    "ops": schema.OTHER_OPS,
    "collectives": schema.OTHER_COLLECTIVES,
}
_NAN: Final = float("nan")
_MOST_UNREADABLE: Final = 3  # files of which each has a notice


def build_run_scene(
    run: ReadableRun, totals: Mapping[int, StepTotals] | None = None
) -> schema.RunScene:
    """Return the scene of a run.

    Args:
        run: the run.
        totals: saved bytes and norms of gradients of ranks; see ``read_totals``.
    """
    totals = totals or {}
    summaries = run.summaries
    odd = run.odd_ranks()
    by_rank: dict[int, list[OddRank]] = {}
    for each in odd:
        by_rank.setdefault(each.rank, []).append(each)
    rows = _row_order(run.groups, by_rank)
    steps = sorted({step.step for each in summaries.values() for step in each.steps})
    files = run.files
    lanes, hidden = build_lanes(files, tuple(find_collective_differences(files)))
    cells = _build_cells(rows, steps, summaries, totals)
    groups = tuple(
        replace(
            _mark_differences(group, rows, steps, summaries, cells.state, by_rank.keys()),
            odd=sum(rank in by_rank for rank in group),
        )
        for group in run.groups
    )
    files_by_rank = {file.rank: file for file in files}
    group_of = {rank: at for at, group in enumerate(run.groups) for rank in group}
    equal = len(summaries) - len(by_rank)
    several = f" in {len(run.groups):,} groups" if len(run.groups) > 1 else ""
    return schema.RunScene(
        title=f"{run.folder.resolve().name}/",
        facts=_describe_run(run),
        verdict=f"{equal:,} equal{several}, {len(by_rank):,} odd",
        notices=tuple(_notices(run, totals)),
        steps=tuple(steps),
        groups=groups,
        ranks=tuple(
            schema.RunRank(
                rank=rank,
                group=group_of[rank],
                host=summaries[rank].host,
                end=describe_end(summaries[rank]),
                is_complete=_is_complete(summaries[rank]),
                file=files_by_rank[rank].path.name,
                nbytes=files_by_rank[rank].path.stat().st_size,
                odd=tuple(map(_describe_odd, by_rank.get(rank, ()))),
                reference=by_rank[rank][0].reference if rank in by_rank else -1,
                holds_parts=rank in totals and totals[rank].are_parts,
            )
            for rank in rows
        ),
        cells=cells,
        findings=tuple(_findings(run)),
        lanes=lanes,
        hidden_lanes=hidden,
        differences=tuple(build_op_differences(odd, files_by_rank)),
        command=f"autogradviz html {run.folder.name}/{{file}}",
    )


def _row_order(groups: Sequence[tuple[int, ...]], odd: Mapping[int, list[OddRank]]) -> list[int]:
    """Return the ranks group by group, in each the odd ones first."""
    return [
        rank for group in groups for rank in sorted(group, key=lambda each: (each not in odd, each))
    ]


def _describe_run(run: ReadableRun) -> str:
    summaries = run.summaries
    hosts = len({summary.host for summary in summaries.values()})
    ended = [sum(step.ended for step in each.steps) for each in summaries.values()]
    most = f"{max(ended):,} step{'s' * (max(ended) != 1)}"
    return (
        f"{len(summaries):,} of {run.world_size:,} ranks on {hosts:,} host{'s' * (hosts != 1)}, "
        f"{most if min(ended) == max(ended) else f'{min(ended):,} to {most}'}"
    )


def _is_complete(summary: RankSummary) -> bool:
    return summary.is_complete and summary.error is None and summary.interrupted is None


def _notices(run: ReadableRun, totals: Mapping[int, StepTotals]) -> list[str]:
    files = {file.rank: file for file in run.files}
    notices = [describe_unreadable(each, files) for each in run.unreadable[:_MOST_UNREADABLE]]
    if len(run.unreadable) > _MOST_UNREADABLE:
        notices.append(f"{len(run.unreadable) - _MOST_UNREADABLE:,} other files cannot be read")
    unreadable = {each.rank for each in run.unreadable}
    missing = sorted(set(range(run.world_size)) - set(run.ranks) - unreadable)
    if missing:
        notices.append(f"{describe_ranks(missing)} wrote no recording")
    if len(totals) < len(run.ranks):
        notices.append(
            f"saved bytes and gradient norms are those of {len(totals):,} of {len(run.ranks):,} "
            "ranks: the recordings of the others are too large to be read"
        )
    return notices


def _describe_odd(odd: OddRank) -> str:
    where = "" if odd.step is None else f", first in step {odd.step:,}"
    return f"{_WORDS[odd.aspect]}{where}: {odd.detail}"


def _findings(run: ReadableRun) -> list[schema.RunFindingCard]:
    return [
        schema.RunFindingCard(
            heading=each.heading,
            ranks=each.ranks,
            **texts_of_finding(each.finding, short_source_line),
        )
        for each in run.diagnose()
    ]


def _build_cells(
    rows: Sequence[int],
    steps: Sequence[int],
    summaries: Mapping[int, RankSummary],
    totals: Mapping[int, StepTotals],
) -> schema.RunCells:
    """Return the values of all ranks and steps; the differences are not yet marked."""
    columns = {step: at for at, step in enumerate(steps)}
    size = len(steps) * len(rows)
    state, ops = array("B", bytes(size)), array("i", [-1]) * size
    time_ms, first_ms, saved, gradient, loss = (array("f", [_NAN]) * size for _ in range(5))
    for row, rank in enumerate(rows):
        before: int | None = 0
        for step in summaries[rank].steps:
            at = row * len(steps) + columns[step.step]
            state[at] = (
                schema.RECORDED
                | (schema.ENDED if step.ended else 0)
                | (schema.NOT_FINITE if step.not_finite else 0)
            )
            ops[at] = -1 if step.ops is None else step.ops
            loss[at] = _NAN if step.loss is None else step.loss
            if before is not None and step.ended:
                time_ms[at] = (step.ended_ns - before) / 1e6
            if before is not None and step.collectives:
                first_ms[at] = (min(each.first_ns for each in step.collectives) - before) / 1e6
            before = step.ended_ns if step.ended else None
        if rank in totals:
            for number, nbytes, norm in zip(*totals[rank][:3], strict=True):
                if number in columns:
                    at = row * len(steps) + columns[number]
                    saved[at] = _NAN if nbytes is None else nbytes
                    gradient[at] = _NAN if norm is None else norm
    return schema.RunCells(
        state=state,
        ops=ops,
        time_ms=time_ms,
        first_ms=first_ms,
        saved=saved,
        gradient=gradient,
        loss=loss,
    )


def _mark_differences(
    group: tuple[int, ...],
    rows: Sequence[int],
    steps: Sequence[int],
    summaries: Mapping[int, RankSummary],
    state: array[int],
    odd: AbstractSet[int],
) -> schema.RunGroup:
    """Mark the cells of odd ranks that differ from most; return the group, without their count."""
    columns = {step: at for at, step in enumerate(steps)}
    row_of = {rank: at for at, rank in enumerate(rows)}
    usual: list[int | None] = [None] * len(steps)
    for compared in compare_steps(group, summaries):
        column = columns[compared.step]
        own = compared.ranks[compared.reference["ops"]].ops
        usual[column] = own if own is None else own + (usual[column] or 0)
        for aspect, flag in _FLAGS.items():
            for rank in odd & set(compared.differing[aspect]):
                state[row_of[rank] * len(steps) + column] |= flag
    return schema.RunGroup(
        label=describe_ranks(group),
        first=min(row_of[rank] for rank in group),
        count=len(group),
        odd=0,
        usual_ops=tuple(usual),
    )
