"""The ops of an odd rank beside those of another rank."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.align_ops import first_difference, side_by_side
from autogradviz.diagnose.text_formatting import short_location
from autogradviz.distributed_runs.collective_differences import RankOps
from autogradviz.distributed_runs.scene.schema import OpDifference, OpPair

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from autogradviz.distributed_runs.odd_ranks import OddRank
    from autogradviz.distributed_runs.rank_files import RankFile

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
