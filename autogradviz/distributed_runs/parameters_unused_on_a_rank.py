"""Parameters that one rank of a run uses, and another one does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz import event_log
from autogradviz.analysis.formatting import format_bytes
from autogradviz.diagnose import Finding
from autogradviz.diagnose.finding_text import explain, join_names
from autogradviz.distributed_runs.branch_or_loop_that_decided import find_branch_not_taken
from autogradviz.distributed_runs.first_different_op import Lines
from autogradviz.events import (
    DataParallelSeen,
    GradAccumulated,
    GradientBucketSeen,
    OpCalled,
    ParameterSeen,
    field_names,
)

if TYPE_CHECKING:
    from autogradviz.analysis.types import SourceLocation
    from autogradviz.distributed_runs.rank_files import RankFile


_KINDS: Final = (
    DataParallelSeen, GradientBucketSeen, GradAccumulated, ParameterSeen, OpCalled,
    *Lines.KINDS,
)  # fmt: skip
_FIELDS: Final = field_names(OpCalled)
_SEQ, _PHASE, _INPUTS, _STACK, _NODE, _CALL, _WRITTEN = (
    _FIELDS.index(name)
    for name in ("seq", "phase", "inputs", "stack_id", "sequence_nr", "call_id", "written")
)
_AWAITED: Final = "Expected to have finished reduction"
"""Part of what the forward of ``DistributedDataParallel`` raises after such a step."""


class _RankGradients:
    """The parameters of one rank that got gradients of its own, by step."""

    def __init__(self, file: RankFile) -> None:
        log = event_log.read_kinds(file.path, _KINDS)
        self.rank = file.rank
        self._summary = file.summary
        wrappers = log.of(DataParallelSeen)
        self.wrapper = wrappers[-1] if wrappers else None
        self.buckets = log.of(GradientBucketSeen)
        names = {
            each.tensor_id: each.parameter_name for each in log.of(ParameterSeen) if not each.buffer
        }
        self._ids = {name: tensor_id for tensor_id, name in names.items()}
        self._ops = log.rows(OpCalled)
        self._lines = Lines(log)
        self.by_step: dict[int, set[str]] = {}
        for event in log.of(GradAccumulated):
            if event.tensor_id in names:
                step = self._summary.step_at(event.seq)
                self.by_step.setdefault(step, set()).add(names[event.tensor_id])

    def _of_step(self, step: int) -> list[tuple[object, ...]]:
        first, until = self._summary.events_of(step)
        return [row for row in self._ops if first <= row[_SEQ] < until]

    def in_order(self, names: set[str]) -> list[str]:
        """Return names in the order of the model."""
        return [name for name in self._ids if name in names]

    def first_use(self, step: int, name: str) -> tuple[SourceLocation, ...] | None:
        """Return the lines, innermost first, of the first op of a step that takes a parameter.

        Ops that initialize or copy it do not count: they are outside of autograd and of modules.
        """
        own = self._ids[name]
        for row in self._of_step(step):
            if (
                row[_PHASE] == "forward"
                and own in row[_INPUTS]  # type: ignore[operator]
                and own not in row[_WRITTEN]  # type: ignore[operator]
                and not (row[_NODE] is None and row[_CALL] is None)
            ):
                return tuple(self._lines.user_stack(row[_STACK]))  # type: ignore[arg-type]
        return None

    def lines(self, step: int) -> set[SourceLocation]:
        """Return all lines of the user's program that ran ops in a step."""
        stacks = {row[_STACK] for row in self._of_step(step)}
        return {line for stack_id in stacks for line in self._lines.user_stack(stack_id)}  # type: ignore[arg-type]


def find_unused_parameters(file: RankFile, other: RankFile) -> tuple[tuple[int, Finding], ...]:
    """Return the findings for two ranks that should use the same parameters.

    Args:
        file: one rank.
        other: another rank with the same parameters.

    Returns:
        The rank and the finding, for each of the ranks that does not use a parameter in the first
        step in which they differ.
    """
    ranks = _RankGradients(file), _RankGradients(other)
    if any(rank.wrapper is None for rank in ranks):
        return ()
    first, second = ranks
    for step in sorted(first.by_step.keys() & second.by_step.keys()):
        if first.by_step[step] != second.by_step[step]:
            raised = [each.rank for each in (file, other) if _waited(each)]
            pairs = ((first, second), (second, first))
            return tuple(
                (lacks.rank, _unused_finding(lacks, uses, step, raised))
                for lacks, uses in pairs
                if uses.by_step[step] - lacks.by_step[step]
            )
    return ()


def _waited(file: RankFile) -> bool:
    """Return whether ``DistributedDataParallel`` raised because it got no gradient."""
    error = file.summary.error
    return error is not None and _AWAITED in error[1]


def _unused_finding(
    lacks: _RankGradients, uses: _RankGradients, step: int, raised: list[int]
) -> Finding:
    assert lacks.wrapper is not None
    names = uses.in_order(uses.by_step[step] - lacks.by_step[step])
    used = uses.first_use(step, names[0])
    own = lacks.first_use(step, names[0])
    stack = used or ()
    branch = None if own is not None else find_branch_not_taken(stack, lacks.lines(step))
    location = next(iter(stack), None)
    is_allowed = lacks.wrapper.find_unused_parameters or lacks.wrapper.static_graph
    count = names[0] if len(names) == 1 else f"{len(names):,} parameters"
    what, other = ("computes no gradient for", "does") if own else ("does not use", "uses them")
    return Finding(
        slug="ddp-unused-parameter",
        title=f"rank {lacks.rank} {what} {count} in step {step}, and rank {uses.rank} {other}",
        culprit=branch or location,
        victim=location,
        explanation=explain(
            f"Rank {lacks.rank} computed no gradient for {join_names(names)} in step {step}.",
            f"Rank {uses.rank} uses {names[0]} here:" if location else "",
            location,
            _why(lacks.rank, is_used=own is not None, branch=branch),
            branch,
            _bucket(uses, lacks, names[0]),
            _effect(raised, is_allowed=is_allowed),
        ),
        fix="# take the same branch on all ranks, or add the sum of the unused outputs times 0"
        if is_allowed
        else "DistributedDataParallel(model, find_unused_parameters=True)",
        confidence="hint"
        if is_allowed
        else "certain"
        if branch is not None and lacks.rank in raised
        else "likely",
        events=(),
    )


def _why(rank: int, *, is_used: bool, branch: SourceLocation | None) -> str:
    if is_used:
        return f"Rank {rank} uses it too, and no gradient reaches it: see its own findings."
    if branch is None:
        return f"No op of rank {rank} takes it in that step."
    return f"Rank {rank} did not take this branch in that step:"


def _bucket(uses: _RankGradients, lacks: _RankGradients, name: str) -> str:
    """Return the bucket in which a parameter is reduced, if it is known."""
    for bucket in (*uses.buckets, *lacks.buckets):
        inside = [each for each in bucket.bucket_parameters if name.endswith(each)]
        if inside:
            return (
                f"Its gradient is reduced in bucket {bucket.bucket}, together with "
                f"{len(bucket.bucket_parameters) - 1:,} others: "
                f"{format_bytes(bucket.bucket_nbytes)}."
            )
    return ""


def _effect(raised: list[int], *, is_allowed: bool) -> str:
    if is_allowed:
        return (
            "DistributedDataParallel marks such parameters as ready, and they get the mean of the "
            "other ranks' gradients, divided by the number of all ranks."
        )
    waits = (
        "DistributedDataParallel reduces the gradients of all parameters on all ranks. The ranks "
        "that have the gradient wait in backward for those that have not."
    )
    listed = " and ".join(f"rank {rank}" for rank in raised)
    return f"{waits} The next forward of {listed} raised therefore." if raised else waits
