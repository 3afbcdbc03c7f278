"""The first collective that the ranks of a process group do not all call, or call differently."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz import event_log
from autogradviz.analysis import align_ops
from autogradviz.diagnose.finding_text import short_location
from autogradviz.distributed_runs.deciding_branch import find_branch_not_taken
from autogradviz.event_log.stacks import Stacks
from autogradviz.events import (
    CollectiveCalled,
    ModuleEntered,
    ModuleSeen,
    OpCalled,
    TensorSeen,
    field_names,
)
from autogradviz.support.op_names import short_op_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from autogradviz.analysis.types import SourceLocation
    from autogradviz.distributed_runs.rank_files import RankFile
    from autogradviz.event_log import Log, RankSummary


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


# --- the first op at which a step of two ranks differs --------------------------------------------


_NOT_COUNTED: Final = ("aten.detach.default", "aten.alias.default")
_FIELDS: Final = field_names(OpCalled)
_SEQ, _THREAD, _OP, _PHASE, _STACK, _CALL = (
    _FIELDS.index(name) for name in ("seq", "thread", "op", "phase", "stack_id", "call_id")
)
_MODULES: Final = (ModuleEntered, ModuleSeen)
_LOOK_AHEAD: Final = 9  # one more than the ops that only one of the ranks calls


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDifference:
    """The first op at which a step of two ranks differs.

    Attributes:
        step: the step.
        index: position of the op in the step, from 0.
        op: what the odd rank called, "relu in blocks.3, train.py:12"; "nothing" if it had ended.
        reference_op: what the other rank called.
        location: the line to look at: of the op that only one of them called, if that is known.
        is_extra: whether the odd rank called an op that the other one did not; False if it
            called one less; None if they called different ones.

    Example:
        >>> with autogradviz.record(model, path="run/"):
        ...     model(x).sum().backward()
        >>> autogradviz.load("run/").first_difference(0, 0) is None
        True
    """

    step: int
    index: int
    op: str
    reference_op: str
    location: SourceLocation | None
    is_extra: bool | None


class _Op(NamedTuple):
    name: str
    phase: str
    stack_id: int | None
    call_id: int | None


class RankOps:
    """The ops of one step of a rank, and where they were called."""

    def __init__(self, file: RankFile, step: int) -> None:
        """Read them."""
        log = event_log.read_kinds(file.path, (OpCalled, *Lines.KINDS, *_MODULES))
        first, until = file.summary.digested_events_of(step)
        self._lines = Lines(log)
        self.ops = [
            _Op(row[_OP], row[_PHASE], row[_STACK], row[_CALL])
            for row in log.rows(OpCalled)
            if first <= row[_SEQ] < until
            and row[_THREAD] == 0
            and row[_OP] not in _NOT_COUNTED
            and not row[_OP].startswith("profiler.")
            and not self._lines.depends_on_shard(row[_STACK])
        ]
        names = dict(log.fields(ModuleSeen, "module_id", "module_name"))
        entered = log.fields(ModuleEntered, "call_id", "module_id")
        self._modules = {call_id: names.get(module_id, "") for call_id, module_id in entered}

    def lines(self, first: int = 0) -> set[SourceLocation]:
        """Return all lines of the user's program that called ops, from one of them on."""
        stacks = {op.stack_id for op in self.ops[first:]}
        return {line for stack_id in stacks for line in self._lines.user_stack(stack_id)}

    def stacks(self) -> list[Sequence[SourceLocation]]:
        """Return the different stacks of the user's lines that called ops, innermost first."""
        stacks = map(self._lines.user_stack, dict.fromkeys(op.stack_id for op in self.ops))
        return [stack for stack in stacks if stack]

    def stack(self, place: int) -> Sequence[SourceLocation]:
        """Return the user's lines that called an op, innermost first."""
        return self._lines.user_stack(self.ops[place].stack_id) if place < len(self.ops) else ()

    def location(self, place: int) -> SourceLocation | None:
        """Return the user's line that called an op."""
        return self._lines.user_line(self.ops[place].stack_id) if place < len(self.ops) else None

    def describe(self, place: int) -> str:
        """Return "relu in blocks.3 (recompute), train.py:12"."""
        if place >= len(self.ops):
            return "nothing"
        location = self.location(place)
        return self.name(place) + (f", {short_location(location)}" if location else "")

    def name(self, place: int) -> str:
        """Return "relu in blocks.3 (recompute)"."""
        op = self.ops[place]
        module = "" if op.call_id is None else self._modules.get(op.call_id, "")
        return "".join(
            (
                op.name.removeprefix("aten.").removesuffix(".default"),
                f" in {module}" if module else "",
                "" if op.phase == "forward" else f" ({op.phase})",
            )
        )


def first_difference(file: RankFile, reference: RankFile, step: int) -> FirstDifference | None:
    """Return the first op of a step at which two ranks differ, None if none does.

    Args:
        file: that of the odd rank.
        reference: that of the rank to compare it with.
        step: the number of the step.
    """
    ours, theirs = RankOps(file, step), RankOps(reference, step)
    first, second = ([op[:2] for op in each.ops] for each in (ours, theirs))
    at = align_ops.first_difference(first, second)
    if at is None:
        return None
    is_extra = _is_extra(first[at:], second[at:])
    return FirstDifference(
        step=step,
        index=at,
        op=ours.describe(at),
        reference_op=theirs.describe(at),
        location=theirs.location(at) if is_extra is False else ours.location(at),
        is_extra=is_extra,
    )


def branch_at_difference(file: RankFile, other: RankFile, step: int) -> SourceLocation | None:
    """Return the branch after which two ranks call different ops, and which one of them took.

    Args:
        file: that of the rank whose next op tells where the branch leads.
        other: that of the other rank.
        step: a step in which their ops differ.
    """
    ours, theirs = RankOps(file, step), RankOps(other, step)
    first, second = ([op[:2] for op in each.ops] for each in (ours, theirs))
    at = align_ops.first_difference(first, second)
    if not at or at == min(len(ours.ops), len(theirs.ops)):
        return None
    ran = {*theirs.stack(at - 1), *theirs.stack(at)}
    return find_branch_not_taken(ours.stack(at), ran, innermost=True)


def _is_extra(ours: list[tuple[str, str]], theirs: list[tuple[str, str]]) -> bool | None:
    """Return whether the first list begins with ops that the second lacks; False for the reverse.

    None if neither continues like the other soon: they call different ops.
    """
    for skipped in range(1, _LOOK_AHEAD):
        if ours[skipped : skipped + 1] == theirs[:1]:
            return True
        if theirs[skipped : skipped + 1] == ours[:1]:
            return False
    return None


# --- source lines of the stacks of one rank -------------------------------------------------------


_FLAT: Final = "torch/distributed/fsdp/_flat_param.py"
_MODULE: Final = "torch/nn/modules/"
_PARTS: Final = ("torch/distributed/fsdp/", "torch/optim/", _MODULE)


class Lines(Stacks):
    """The stacks of one rank, which know what runs on parts of parameters."""

    def __init__(self, log: Log) -> None:
        """Prepare."""
        super().__init__(log)
        files = {each: self._locations[each].filename.replace("\\", "/") for each in self._library}
        self._parts = {frame_id: _part_of_torch(name) for frame_id, name in files.items()}
        self._has_flat_parameters = any(each.endswith(_FLAT) for each in files.values())

    def depends_on_shard(self, stack_id: int | None) -> bool:
        """Return whether FSDP1 or the optimizer called an op, on its part of a flat parameter.

        The parts of the ranks contain other parameters, and padding at their end, so that these ops
        differ between ranks that do the same.
        """
        if not self._has_flat_parameters:
            return False
        for frame_id in self._frame_ids.get(stack_id, ()):
            part = self._parts.get(frame_id, _MODULE)  # a frame of the user
            if part is not None:
                return part is not _MODULE
        return False


def _part_of_torch(filename: str) -> str | None:
    """Return the entry of ``_PARTS`` that a file belongs to."""
    return next((part for part in _PARTS if part in filename), None)
