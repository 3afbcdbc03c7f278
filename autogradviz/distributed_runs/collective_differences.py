"""The first collective that the ranks of a process group do not all call, or call differently."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from autogradviz import event_log
from autogradviz.event_log.stacks import Stacks
from autogradviz.events import (
    CollectiveCalled,
    TensorSeen,
)
from autogradviz.support.op_names import short_op_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from autogradviz.analysis.types import SourceLocation
    from autogradviz.distributed_runs.rank_files import RankFile
    from autogradviz.event_log import RankSummary


_KINDS: Final = (CollectiveCalled, TensorSeen, *Stacks.KINDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCall:
    """A collective that a rank called.

    Attributes:
        rank: the rank.
        seq: the number of the event in its recording.
        number: position among the collectives of the group, from 0.
        name: "allreduce_".
        tensors: "float32 16×4, float32 16".
        stack: the user's lines, innermost first.
    """

    rank: int
    seq: int
    number: int
    name: str
    tensors: str
    stack: tuple[SourceLocation, ...]

    @property
    def location(self) -> SourceLocation | None:
        """The user's line."""
        return next(iter(self.stack), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveDifference:
    """The first collective of a step that two ranks of a group do not call alike.

    Attributes:
        group_name: name of the process group.
        step: the step.
        called: the collective that one rank called.
        other: what the other rank called in its place; None if it called none.
        other_rank: the other rank.
    """

    group_name: str
    step: int
    called: CollectiveCall
    other: CollectiveCall | None
    other_rank: int


class RankCollectives:
    """The collectives of one rank."""

    def __init__(self, file: RankFile) -> None:
        """Read them."""
        log = event_log.read_kinds(file.path, _KINDS)
        self._rank = file.rank
        self._summary = file.summary
        self._calls = log.of(CollectiveCalled)
        self._tensors = {
            each.tensor_id: f"{each.dtype} {'×'.join(map(str, each.shape)) or 'scalar'}"
            for each in log.of(TensorSeen)
        }
        self._lines = Stacks(log)

    def of(self, step: int, group_name: str) -> list[tuple[str, CollectiveCall]]:
        """Return key and call of each collective of a step; keys are equal on all ranks."""
        return [(key, call) for key, own, call in self.of_group(group_name) if own == step]

    def of_group(self, group_name: str) -> list[tuple[str, int, CollectiveCall]]:
        """Return key, step and call of each collective of a process group."""
        return [
            (
                event_log.collective_key(call, self._tensors),
                self._summary.step_at(call.seq),
                CollectiveCall(
                    rank=self._rank,
                    seq=call.seq,
                    number=call.group_number,
                    name=short_op_name(call.op),
                    tensors=", ".join(self._tensors.get(each, "?") for each in call.tensor_ids),
                    stack=self._lines.user_stack(call.stack_id),
                ),
            )
            for call in self._calls
            if call.group_name == group_name and call.group_number is not None
        ]


def find_collective_differences(files: Sequence[RankFile]) -> Iterator[CollectiveDifference]:
    """Yield the first difference in each process group."""
    by_rank = {file.rank: file for file in files}
    ranks_of: dict[tuple[str, tuple[int, ...]], None] = {}
    for file in files:
        for name, _, ranks in file.summary.groups:
            ranks_of[name, ranks] = None
    for name, ranks in ranks_of:
        members = [by_rank[rank] for rank in ranks if rank in by_rank]
        pair = _first_pair(name, {file.rank: file.summary for file in members})
        if pair is not None:
            step, first, second = pair
            yield from _compare(name, step, by_rank[first], by_rank[second])


def _first_pair(name: str, summaries: Mapping[int, RankSummary]) -> tuple[int, int, int] | None:
    """Return the first step in which two ranks of a group differ, and the ranks."""
    by_step: dict[int, dict[int, tuple[int, int]]] = {}
    for rank, summary in summaries.items():
        for step in summary.steps:
            own = next((each for each in step.collectives if each.group_name == name), None)
            if step.ended or has_stopped(summary) or own is not None:
                found = (0, 0) if own is None else (own.calls, own.digest)
                by_step.setdefault(step.step, {})[rank] = found
        if has_stopped(summary) and (not summary.steps or summary.steps[-1].ended):
            after = summary.steps[-1].step + 1 if summary.steps else 0
            by_step.setdefault(after, {})[rank] = (0, 0)
    for number, found_by_rank in sorted(by_step.items()):
        if len(set(found_by_rank.values())) > 1:
            most = max(found_by_rank, key=lambda rank: (found_by_rank[rank][0], -rank))
            others = (rank for rank, each in found_by_rank.items() if each != found_by_rank[most])
            return number, most, min(others, key=lambda rank: (found_by_rank[rank][0], rank))
    return None


def has_stopped(summary: RankSummary) -> bool:
    """Return whether a rank will call nothing more: its recording ended, or nothing happened."""
    if summary.interrupted is not None:
        return summary.interrupted[0].startswith("no event")
    return summary.is_complete


def _compare(
    name: str, step: int, file: RankFile, other: RankFile
) -> Iterator[CollectiveDifference]:
    calls = [RankCollectives(each).of_group(name) for each in (file, other)]
    is_step = all(_has_ended(each, step) for each in (file, other))
    if not is_step and _are_equal_from(step, *calls):
        return
    ours, theirs = ([(key, call) for key, own, call in each if own == step] for each in calls)
    for mine, its in zip_longest(ours, theirs):
        if mine is not None and its is not None and mine[0] == its[0]:
            continue
        called, missing = (mine, its) if mine is not None else (its, mine)
        late = other if mine is not None else file
        if called is not None and (missing is not None or is_final(late, step)):
            yield CollectiveDifference(
                group_name=name,
                step=step,
                called=called[1],
                other=None if missing is None else missing[1],
                other_rank=late.rank,
            )
        return


def _are_equal_from(
    step: int,
    ours: Sequence[tuple[str, int, CollectiveCall]],
    theirs: Sequence[tuple[str, int, CollectiveCall]],
) -> bool:
    """Return whether two ranks call the same collectives in other steps.

    With ``Join``, a rank whose data has ended repeats the collectives of the others, without steps.
    """
    tails = [
        {call.number: key for key, own, call in each if own >= step} for each in (ours, theirs)
    ]
    return bool(tails[0]) and tails[0] == tails[1]


def is_final(file: RankFile, step: int) -> bool:
    """Return whether a rank called all collectives of a step that it was going to call."""
    return _has_ended(file, step) or has_stopped(file.summary)


def _has_ended(file: RankFile, step: int) -> bool:
    return any(each.step == step and each.ended for each in file.summary.steps)
