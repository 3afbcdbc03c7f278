"""The collectives of each process group, rank beside rank."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from autogradviz.analysis.formatting import short_source_line
from autogradviz.distributed_runs.collective_differences import (
    RankCollectives,
    has_stopped,
    is_final,
)
from autogradviz.distributed_runs.findings import describe_group
from autogradviz.distributed_runs.rank_files import describe_ranks
from autogradviz.distributed_runs.scene.schema import CollectiveLanes, Lane, LaneCall

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from autogradviz.distributed_runs.collective_differences import (
        CollectiveCall,
        CollectiveDifference,
    )
    from autogradviz.distributed_runs.rank_files import RankFile
    from autogradviz.distributed_runs.scene.schema import CellState

MOST_COLUMNS: Final = 160
MOST_LANES: Final = 10
MOST_GROUPS: Final = 8
MOST_READ: Final = 24
"""Ranks whose collectives are read, in all."""

_BEFORE: Final = 40  # columns left of the first difference


def build_lanes(
    files: Sequence[RankFile], differences: Sequence[CollectiveDifference]
) -> tuple[tuple[CollectiveLanes, ...], int]:
    """Return the lanes of the process groups, those with a difference first.

    Returns:
        the lanes, and the number of process groups that are left out.
    """
    by_rank = {file.rank: file for file in files}
    members: dict[tuple[str, tuple[int, ...]], None] = {}
    for file in files:
        for name, _, ranks in file.summary.groups:
            if len(ranks) > 1 and any(place.group_name == name for place in file.summary.newest):
                members[name, ranks] = None
    first_of = {each.group_name: each for each in differences}
    ordered = sorted(members, key=lambda each: (each[0] not in first_of, -len(each[1]), each[1]))
    read = _Calls(by_rank)
    found: list[CollectiveLanes] = []
    for name, ranks in ordered[:MOST_GROUPS]:
        present = [by_rank[rank] for rank in ranks if rank in by_rank]
        lanes = _lanes_of(name, present, first_of.get(name), read)
        if lanes is not None:
            found.append(lanes)
    return tuple(found), len(ordered) - len(found)


class _Called(NamedTuple):
    """A collective of a rank."""

    key: str  # equal on all ranks of the group
    call: CollectiveCall


_Column: TypeAlias = tuple[int, int]
"""Step, and position among the collectives of the group in that step."""


class _Calls:
    """The collectives of some ranks, each read once."""

    def __init__(self, by_rank: Mapping[int, RankFile]) -> None:
        self._by_rank = by_rank
        self._read: dict[int, RankCollectives] = {}

    def of(self, rank: int, group_name: str) -> dict[_Column, _Called] | None:
        """Return the calls by column; None if too many ranks have been read."""
        if rank not in self._read:
            if len(self._read) == MOST_READ:
                return None
            self._read[rank] = RankCollectives(self._by_rank[rank])
        counts: Counter[int] = Counter()
        found = {}
        for key, step, call in self._read[rank].of_group(group_name):
            found[step, counts[step]] = _Called(key, call)
            counts[step] += 1
        return found


def _classes(
    name: str, files: Sequence[RankFile], difference: CollectiveDifference | None
) -> list[list[RankFile]]:
    """Return the ranks that called the same collectives, most ranks first."""
    by_calls: dict[Hashable, list[RankFile]] = defaultdict(list)
    for file in files:
        steps = tuple(
            (step.step, each.calls, each.digest)
            for step in file.summary.steps
            for each in step.collectives
            if each.group_name == name
        )
        by_calls[steps, has_stopped(file.summary)].append(file)
    named = {difference.called.rank, difference.other_rank} if difference else set()
    ordered = sorted(by_calls.values(), key=lambda each: (-len(each), each[0].rank))
    return ordered[:1] + sorted(
        ordered[1:], key=lambda each: named.isdisjoint(file.rank for file in each)
    )


def _lanes_of(
    name: str,
    files: Sequence[RankFile],
    difference: CollectiveDifference | None,
    read: _Calls,
) -> CollectiveLanes | None:
    classes = _classes(name, files, difference)
    called = [
        _Row(each, calls)
        for each in classes[:MOST_LANES]
        if (calls := read.of(each[0].rank, name)) is not None
    ]
    columns = sorted({column for row in called for column in row.calls})
    if not columns:
        return None
    start = len(columns) - MOST_COLUMNS
    if difference is not None:
        at = next((k for k, (step, _) in enumerate(columns) if step >= difference.step), start)
        start = min(start, at - _BEFORE)
    start = max(0, start)
    shown = columns[start : start + MOST_COLUMNS]
    usual = {column: _usual(called, column) for column in shown}
    table: dict[LaneCall, int] = {}
    lanes = tuple(
        Lane(
            label=describe_ranks([file.rank for file in row.files]),
            ranks=tuple(file.rank for file in row.files),
            states=tuple(_state(row, column, usual[column]) for column in shown),
            calls=tuple(
                table.setdefault(_describe(row.calls[column].call), len(table))
                if column in row.calls
                else -1
                for column in shown
            ),
            numbers=tuple(
                row.calls[column].call.number if column in row.calls else -1 for column in shown
            ),
        )
        for row in called
    )
    numbers = (usual[column] or _first(called, column) for column in shown)
    return CollectiveLanes(
        label=describe_group(name, files[0].summary), first=start, total=len(columns),
        steps=tuple(step for step, _ in shown), numbers=tuple(each.call.number for each in numbers),
        calls=tuple(table), lanes=lanes, hidden=len(classes) - len(called),
    )  # fmt: skip


class _Row(NamedTuple):
    """Ranks that called the same collectives, and the calls of the first of them."""

    files: list[RankFile]
    calls: dict[_Column, _Called]


def _first(rows: Sequence[_Row], column: _Column) -> _Called:
    return next(row.calls[column] for row in rows if column in row.calls)


def _usual(rows: Sequence[_Row], column: _Column) -> _Called | None:
    """Return the call of most ranks that got so far, None if they call none."""
    votes: Counter[tuple[str, int] | None] = Counter()
    found: dict[tuple[str, int] | None, _Called | None] = {None: None}
    for row in rows:
        called = row.calls.get(column)
        if called is not None:
            vote = called.key, called.call.number
            found.setdefault(vote, called)
            votes[vote] += len(row.files)
        elif is_final(row.files[0], column[0]):
            votes[None] += len(row.files)
    # Of as many, one that was called.
    best = max(votes, key=lambda vote: (votes[vote], vote is not None))
    return found[best]


def _state(row: _Row, column: _Column, usual: _Called | None) -> CellState:
    called = row.calls.get(column)
    if called is None:
        if usual is None:
            return "none"
        return "missing" if is_final(row.files[0], column[0]) else "unknown"
    if usual is None:
        return "extra"
    if called.key != usual.key:
        return "other"
    return "same" if called.call.number == usual.call.number else "shifted"


def _describe(call: CollectiveCall) -> LaneCall:
    file, line, text = short_source_line(call.location)
    return LaneCall(name=call.name, tensors=call.tensors, file=file, line=line, text=text)
