"""The first op that two ranks do not both call, and the branch that leads to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz import event_log
from autogradviz.analysis import align_ops
from autogradviz.diagnose.finding_text import short_location
from autogradviz.distributed_runs.branch_or_loop_that_decided import find_branch_not_taken
from autogradviz.event_log.stacks import Stacks
from autogradviz.events import (
    ModuleEntered,
    ModuleSeen,
    OpCalled,
    field_names,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.analysis.types import SourceLocation
    from autogradviz.distributed_runs.rank_files import RankFile
    from autogradviz.event_log import Log


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
